//! taskgate in this process.

use std::net::{Ipv4Addr, SocketAddr};

use taskgate::{
    app::App,
    config::{self, Overrides, Target},
    gate::http::Workers,
};
use tokio::{sync::oneshot, task::JoinHandle};

use super::{Upstream, soon};

/// A running taskgate. It ends with the test's runtime, or by [`Gate::stop`].
pub(crate) struct Gate {
    /// The endpoint of the first upstream.
    pub(crate) url: String,
    /// The endpoints of all upstreams.
    pub(crate) urls: Vec<String>,
    /// The admin port, if `server.admin` is configured.
    pub(crate) admin: Option<String>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Gate {
    /// Starts taskgate with its defaults in front of `upstream`.
    pub(crate) async fn before(upstream: &Upstream) -> Self {
        Self::with(upstream, "").await
    }

    /// Starts taskgate in front of `upstream`, configured by `toml`. Its `[[upstream]]` block, if it has one, needs no
    /// url.
    pub(crate) async fn with(upstream: &Upstream, toml: &str) -> Self {
        Self::to(&upstream.url(), toml).await
    }

    /// Starts taskgate in front of the server at `url`, configured by `toml`.
    pub(crate) async fn to(url: &str, toml: &str) -> Self {
        Self::start(toml, Some(config::target_from_url(url).unwrap())).await
    }

    /// Starts taskgate in front of a child process, configured by `toml`.
    pub(crate) async fn with_command(program: &str, args: &[&str], toml: &str) -> Self {
        let args = args.iter().map(ToString::to_string).collect();
        Self::start(toml, Some(Target::Command { program: program.to_owned(), args })).await
    }

    /// Starts taskgate configured by `toml` alone.
    pub(crate) async fn configured(toml: &str) -> Self {
        Self::start(toml, None).await
    }

    async fn start(toml: &str, target: Option<Target>) -> Self {
        let listen = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let overrides = Overrides { listen, target, ..Overrides::default() };
        let config = config::parse("test.toml", toml, overrides).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let app = App::bind(config, Workers::here()).await.unwrap();
        let (urls, admin) = (app.endpoints(), app.admin());
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(app.run(async {
            let _ = stopped.await;
        }));
        Self { url: urls[0].clone(), urls, admin, stop, serving }
    }

    /// Returns `host:port` of the endpoint.
    pub(crate) fn authority(&self) -> &str {
        self.url.trim_start_matches("http://").split('/').next().unwrap()
    }

    /// Stops it, and waits until it has stopped.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        soon(self.serving).await.unwrap();
    }
}
