//! Ports to listen on more than once.

use std::net::SocketAddr;

use tokio::net::TcpSocket;

/// A port of this machine on which a process can listen, end, and listen again: no other test gets it meanwhile.
pub(crate) struct Port(TcpSocket);

impl Port {
    /// Takes a free one.
    pub(crate) fn free() -> Self {
        Self::at(([127, 0, 0, 1], 0).into())
    }

    /// Takes the port of `address`, which must be free.
    pub(crate) fn at(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        // Who listens on it sets this too.
        socket.set_reuseaddr(true).unwrap();
        socket.bind(address).unwrap();
        Self(socket)
    }

    /// Returns the address to listen on.
    pub(crate) fn address(&self) -> String {
        self.0.local_addr().unwrap().to_string()
    }
}
