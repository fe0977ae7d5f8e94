# The daemon with its kernels compiled at their final path, for any x86-64 processor and for what newer ones have more: a
# container compiles nothing. No compiler and no package manager at run time.
# BASE_IMAGE needs Python 3.11 or later with venv. Pin it by digest where you build for others.
ARG BASE_IMAGE=python:3.11-slim
FROM ${BASE_IMAGE} AS build
WORKDIR /opt/build
COPY requirements ./requirements
RUN python3 -m venv tools \
 && tools/bin/python -m pip install --quiet --no-cache-dir --require-hashes -r requirements/build.txt \
 && python3 -m venv --without-pip /opt/kafkalog/.venv \
 && tools/bin/uv pip install --quiet --no-cache --system-certs --compile-bytecode --require-hashes \
      --python /opt/kafkalog/.venv/bin/python -r requirements/run.txt
COPY pyproject.toml README.md LICENSE ./
COPY docs/runbooks ./docs/runbooks
COPY kafkalog ./kafkalog
COPY pyspark_kafkalog ./pyspark_kafkalog
RUN KAFKALOG_WHEEL_KERNELS=none tools/bin/python -m pip wheel --quiet --no-cache-dir --no-deps --no-build-isolation --wheel-dir wheels . \
 && tools/bin/uv pip install --quiet --no-cache --no-deps --compile-bytecode \
      --python /opt/kafkalog/.venv/bin/python wheels/kafkalog-*.whl
WORKDIR /opt/kafkalog
RUN .venv/bin/python -m kafkalog.kernels

FROM ${BASE_IMAGE}
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="kafkalog" \
      org.opencontainers.image.description="Topic logs exactly as Apache Kafka keeps them, over HTTP" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=build /opt/kafkalog /opt/kafkalog
COPY config/image.properties /etc/kafkalog/image.properties
# Group 0 has the rights of the owner, so that any user of that group can run the image (OpenShift).
RUN mkdir -p /var/lib/kafka/data && chown 1000:0 /var/lib/kafka/data && chmod 0770 /var/lib/kafka/data
ENV PATH=/opt/kafkalog/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    KAFKALOG_SERVER_PROPERTIES=/etc/kafkalog/image.properties:-/mnt/shared/config/server.properties
USER 1000:0
WORKDIR /var/lib/kafka/data
VOLUME /var/lib/kafka/data
EXPOSE 8082
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --start-period=30s --timeout=3s CMD ["kafkalog", "health", "--ready"]
ENTRYPOINT ["kafkalog"]
CMD ["server"]
