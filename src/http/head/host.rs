//! Hosts: which octets name a server and its port without a second reading.
//!
//! Not which hosts are ours: routes decide that.

use super::field::content_length;

/// Whether `octets` are `uri-host [":" port]` (RFC 9110 7.2) in one of the forms that have a single reading: a name of
/// letters, digits, `-`, `.`, `_` and `~`, an IPv4 address, or an IPv6 address in brackets. RFC 3986 3.2.2 would also
/// allow percent-encoding and sub-delimiters such as the comma, at which hops are known to cut.
pub(super) fn is_host(octets: &[u8]) -> bool {
    let (host, port) = match octets {
        [b'[', rest @ ..] => {
            let Some(end) = rest.iter().position(|octet| *octet == b']') else {
                return false;
            };
            let text = std::str::from_utf8(&rest[..end]).unwrap_or_default();
            if text.parse::<std::net::Ipv6Addr>().is_err() {
                return false;
            }
            (&octets[..end + 2], &rest[end + 1..])
        }
        _ => {
            let end = octets.iter().position(|octet| *octet == b':').unwrap_or(octets.len());
            let is_name = |octet: &u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'.' | b'_' | b'~');
            if !octets[..end].iter().all(is_name) {
                return false;
            }
            octets.split_at(end)
        }
    };
    !host.is_empty() && is_port(port)
}

/// Nothing, or a colon and at most a 16-bit number (RFC 3986 3.2.3 allows the number to be empty).
fn is_port(octets: &[u8]) -> bool {
    match octets {
        [] => true,
        [b':', digits @ ..] => {
            digits.iter().all(u8::is_ascii_digit)
                && digits.len() <= 5
                && content_length(digits).is_none_or(|port| port <= u64::from(u16::MAX))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        for good in ["a", "a.test", "A-b_c.test:8080", "10.0.0.1:1", "[::1]", "[2001:db8::1]:65535", "a.test:"] {
            assert!(is_host(good.as_bytes()), "{good:?}");
        }
        for bad in [
            "",
            ":80",
            "a b",
            "a,b",
            "a, b",
            "u@a",
            "a:b",
            "a:65536",
            "a:123456",
            "[::1",
            "[::1]x",
            "[a]",
            "a/b",
            "a%41",
            "[fe80::1%25eth0]",
            "a:+1",
            "\u{e4}",
        ] {
            assert!(!is_host(bad.as_bytes()), "{bad:?}");
        }
    }
}
