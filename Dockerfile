# One image for every process: worker, watchdog, serve.

FROM python:3.12-slim AS build
# What to install besides the product; "[demo]" brings what the example's handlers need.
ARG EXTRAS=""
RUN python -m venv /opt/ghostless
WORKDIR /source
COPY pyproject.toml README.md app.py ./
COPY benchmarks ./benchmarks
COPY examples ./examples
COPY jobs ./jobs
COPY lua ./lua
COPY statemachine ./statemachine
COPY web ./web
RUN /opt/ghostless/bin/pip install --no-cache-dir ".${EXTRAS}"

FROM python:3.12-slim
RUN useradd --system --uid 10001 --create-home ghostless \
    && install --directory --owner ghostless /var/lib/ghostless
COPY --from=build /opt/ghostless /opt/ghostless
ENV PATH=/opt/ghostless/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    GHOSTLESS_ARTIFACTS=/var/lib/ghostless
# Handlers of your own: start FROM this image, COPY them here, and set GHOSTLESS_TASKS to their modules.
WORKDIR /home/ghostless
USER ghostless
ENTRYPOINT ["ghostless"]
CMD ["--help"]
