// Follows a URL with the npm package eventsource; a line of JSON for each event, until `count` records were seen.
// usage: node event_source.mjs <module> <url> <count>
import { writeSync } from 'node:fs'
const [path, url, count] = process.argv.slice(2)
const { EventSource } = await import(path)
const source = new EventSource(url)
const alive = setInterval(() => {}, 1 << 30) // the package does not keep node alive while it waits to reconnect
let seen = 0
const close = () => {
  source.close()
  clearInterval(alive)
}
const say = (kind, event) => writeSync(1, JSON.stringify({ kind, id: event.lastEventId, data: JSON.parse(event.data) }) + '\n')
source.addEventListener('record', (event) => {
  say('record', event)
  if (++seen === Number(count)) close()
})
source.addEventListener('control', (event) => say('control', event))
source.addEventListener('end', (event) => {
  say('end', event)
  if (!JSON.parse(event.data).retriable) close()
})
source.addEventListener('error', (event) => {
  const state = source.readyState
  writeSync(1, JSON.stringify({ kind: 'error', code: event.code ?? null, state }) + '\n')
  if (state === EventSource.CLOSED) clearInterval(alive)
})
