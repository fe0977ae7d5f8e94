# The daemon with its kernels compiled at their final path; no compiler and no package manager at run time.
ARG BASE_IMAGE=python:3.11-slim
FROM ${BASE_IMAGE} AS build
WORKDIR /opt/kafkalog
COPY requirements ./requirements
RUN python3 -m venv .venv \
 && .venv/bin/python -m pip install --quiet --require-hashes -r requirements/build.txt \
 && .venv/bin/uv pip install --quiet --system-certs --python .venv/bin/python --require-hashes -r requirements/run.txt
COPY pyproject.toml README.md ./
COPY kafkalog ./kafkalog
RUN .venv/bin/uv pip install --quiet --system-certs --python .venv/bin/python --no-deps --no-build-isolation . \
 && .venv/bin/python -m kafkalog.kernels \
 && rm -rf kafkalog

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="kafkalog" org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/kafkalog /opt/kafkalog
COPY config/server.properties /etc/kafkalog/server.properties
RUN mkdir -p /var/lib/kafka/data && chown 1000:0 /var/lib/kafka/data && chmod 0770 /var/lib/kafka/data
ENV PATH=/opt/kafkalog/.venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    KAFKALOG_LOG_DIRS=/var/lib/kafka/data/log0 KAFKALOG_HTTP_HOST=0.0.0.0 KAFKALOG_HTTP_AUTH=none
USER 1000:0
VOLUME /var/lib/kafka/data
EXPOSE 8082
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --start-period=30s --timeout=3s CMD ["kafkalog", "health", "--ready"]
ENTRYPOINT ["kafkalog"]
CMD ["server", "/etc/kafkalog/server.properties"]
