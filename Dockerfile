# An image for servers at a URL: taskgate, the C library and the certificates of the authorities, no shell.
# docs/deploy.md says how to run it, and how to make one with a stdio server in it.
FROM rust:1-trixie AS build
WORKDIR /build
COPY Cargo.toml Cargo.lock build.rs ./
COPY src src
# How SQLite and the allocator are built.
COPY .cargo .cargo
# For --version; no repository is copied.
ARG TASKGATE_COMMIT
RUN cargo build --locked --release

FROM gcr.io/distroless/cc-debian13:nonroot
COPY --from=build /build/target/release/taskgate /usr/local/bin/
# A number, so that Kubernetes can tell that it is not root.
USER 65532:65532
ENV TASKGATE_LISTEN=0.0.0.0:8808
EXPOSE 8808
ENTRYPOINT ["/usr/local/bin/taskgate"]
CMD ["serve"]
