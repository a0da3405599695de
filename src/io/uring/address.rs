//! A socket address as the kernel reads it.

use std::net::SocketAddr;

/// Boxed by its operation while the kernel may read it.
pub(super) enum RawAddress {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl RawAddress {
    /// Where it is, and how long. Valid while it does not move.
    pub(super) fn pointer(&self) -> (*const libc::sockaddr, libc::socklen_t) {
        match self {
            Self::V4(address) => ((&raw const *address).cast(), size_of_val(address) as libc::socklen_t),
            Self::V6(address) => ((&raw const *address).cast(), size_of_val(address) as libc::socklen_t),
        }
    }
}

impl From<SocketAddr> for RawAddress {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => Self::V4(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(address) => Self::V6(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            }),
        }
    }
}
