# One image for `leap init`, `leap worker`, `leap archive` and the other commands of the stream.
FROM python:3.11-slim AS build
WORKDIR /src
COPY . .
RUN python -m venv /opt/leap \
 && /opt/leap/bin/pip install --no-cache-dir -c constraints.txt '.[streams,training]'

FROM python:3.11-slim
COPY --from=build /opt/leap /opt/leap
# Feast's definitions, which `leap rebuild` and `feast` read; the package beside them comes from the environment above.
COPY feature_repo/definitions.py feature_repo/feature_store.yaml feature_repo/.feastignore /srv/leap/feature_repo/
RUN useradd --system --uid 10001 --home-dir /srv/leap leap \
 && mkdir -p /srv/leap/data \
 && chown -R leap /srv/leap
ENV PATH=/opt/leap/bin:$PATH PYTHONUNBUFFERED=1
USER leap
WORKDIR /srv/leap
VOLUME /srv/leap/data
ENTRYPOINT ["leap"]
CMD ["--help"]
