// Produces three records and reads them again. Standard library only: go run example.go
package main

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
)

const lines = `{"key": "alice", "value": {"drink": "tea", "cups": 1}}
{"key": "bob", "value": {"drink": "coffee", "cups": 2}}
{"key": "alice", "value": {"drink": "water", "cups": 3}}`

// body returns the body of an answer, or ends the program with the daemon's message.
func body(answer *http.Response, err error) io.ReadCloser {
	if err != nil {
		log.Fatal(err)
	}
	if answer.StatusCode >= 300 {
		message, _ := io.ReadAll(answer.Body)
		log.Fatalf("%s: %s", answer.Status, message)
	}
	return answer.Body
}

func main() {
	url := os.Getenv("KAFKALOG_URL")
	if url == "" {
		url = "http://127.0.0.1:8082"
	}
	records := url + "/v1/topics/examples/records"

	// One record a line. The first one creates the topic; the answer comes when all are on the disk.
	appended := body(http.Post(records, "application/x-ndjson", strings.NewReader(lines)))
	summary, _ := io.ReadAll(appended)
	fmt.Println(string(summary))

	// A line for each record as it comes; the answer ends at the end of the log.
	request, err := http.NewRequest("GET", records+"?tail=3&fields=partition,offset,key,value", nil)
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Accept", "application/x-ndjson")
	stream := body(http.DefaultClient.Do(request))
	defer stream.Close()
	for scanner := bufio.NewScanner(stream); scanner.Scan(); {
		fmt.Println(scanner.Text())
	}
}
