//! Reading a token of an asynchronous action, for any octets at all.
//!
//! Invariants:
//! 1. Nothing panics, and what is longer than the bound is not looked at.
//! 2. Whoever is named is named as a configuration would: `host:port` in lower case, a port from 1, IPv6 in brackets.
//! 3. What is read as a token is read alike without its padding.
//! 4. In a request a token is found, refused or not there; it leads to the same child as the token alone.
#![no_main]

use std::sync::LazyLock;

use antiphon::action::{Asked, Class, Dialect, RuleSet, Rules, Token, Verdict};
use antiphon::error::Side;
use libfuzzer_sys::fuzz_target;

static IDOL: LazyLock<Rules> =
    LazyLock::new(|| Rules::new(Dialect::Aci, RuleSet::Idol, Vec::new(), Class::Change).expect("rules"));

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let token = Token::decode(text);
    if let Some(token) = &token {
        assert!(text.len() <= 512);
        let (host, port) = token.issuer.rsplit_once(':').expect("a port");
        assert!(port.parse::<u16>().is_ok_and(|port| port > 0));
        assert!(!host.is_empty() && *token.issuer == token.issuer.to_ascii_lowercase());
        assert_eq!(host.contains(':'), host.starts_with('[') && host.ends_with(']'));
        assert_eq!(Token::decode(text.trim_end_matches('=')).as_ref(), Some(token));
    }
    let body: Vec<u8> = text.bytes().flat_map(|octet| format!("%{octet:02x}").into_bytes()).collect();
    let body = [b"QueueAction=cancel&Token=", &body[..]].concat();
    let asked = Asked::bare(b"POST", b"/a=QueueInfo").with_body(&body);
    let Ok(Verdict::Decided(decision)) = IDOL.classify(&asked) else { unreachable!("one reading") };
    match decision.token(&asked) {
        Ok(found) => assert_eq!(found.as_ref(), Token::decode(text.trim()).as_ref()),
        Err(fault) => assert_eq!(fault.side(), Side::Client),
    }
});
