//! The token of an asynchronous action: which server issued it, and which requests are for that server alone.
//!
//! The child that starts an asynchronous action answers with a token, and no other child knows it. A token is base64
//! (RFC 4648 4) of `host:port:queue:number`: `MTAuMi4xMDUuMzQ6MTIzNDpGRVRDSDoxNDAyOTU3MzY4` is
//! `10.2.105.34:1234:FETCH:1402957368`. Only the action `QueueInfo` is sent by its token; it is forwarded as it came.
//!
//! Not here: which child has that address (`route`), and what becomes of a token whose issuer is away.
//!
//! Read strictly: what is not a token to the letter is refused, and never leads anywhere. The padding may be left out,
//! for it says nothing and clients that put a token into a URL like to cut it off.

use std::net::{IpAddr, Ipv6Addr};

use super::{Asked, Class, Decision, Parameters, Reason};
use crate::error::Fault;
use crate::limits::{OWN_BODY_BYTES_MAX, TOKEN_BYTES_MAX};

/// The action that takes a token, in lower case.
const QUEUE_INFO: &str = "queueinfo";

/// A token, as far as it says where to send it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The server that issued it, as a configuration spells it: `host:port` in lower case, addresses in their canonical
    /// form, IPv6 in brackets.
    pub issuer: Box<str>,
}

impl Token {
    /// Reads a token as the server gave it, at most [`TOKEN_BYTES_MAX`] octets.
    ///
    /// ```
    /// use antiphon::action::Token;
    /// let token = Token::decode("MTAuMi4xMDUuMzQ6MTIzNDpGRVRDSDoxNDAyOTU3MzY4").expect("a token");
    /// assert_eq!(&*token.issuer, "10.2.105.34:1234");
    /// assert_eq!(Token::decode("MTAuMi4xMDUuMzQ6MTIzNA=="), None);
    /// ```
    #[must_use]
    pub fn decode(text: &str) -> Option<Self> {
        let plain = base64(text.as_bytes())?;
        let plain = std::str::from_utf8(&plain).ok()?;
        // From the end: an IPv6 address has colons of its own.
        let mut fields = plain.rsplitn(4, ':');
        let (number, queue, port, host) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let is_number = |text: &str| (1..=20).contains(&text.len()) && text.bytes().all(|octet| octet.is_ascii_digit());
        if !is_number(number) || queue.is_empty() || !queue.bytes().all(|octet| octet.is_ascii_graphic()) {
            return None;
        }
        let port = port.parse::<u16>().ok().filter(|found| *found > 0 && is_number(port))?;
        Some(Self { issuer: format!("{}:{port}", host_of(host)?).into() })
    }
}

impl Decision<'_> {
    /// The token by which a read is to be sent to one child alone; `None`: any child may answer it.
    ///
    /// # Errors
    /// [`Fault::TokenInvalid`]; [`Fault::TokenMissing`] where the rule lets the issuer alone carry it out;
    /// [`Fault::ActionAmbiguous`] for two tokens; [`Fault::BodyTooLarge`] where one could stand in a body too long to be
    /// looked through.
    pub fn token(&self, asked: &Asked<'_>) -> Result<Option<Token>, Fault> {
        let takes_token = self.rule.issuer_only() || self.name.as_str() == QUEUE_INFO;
        if self.class != Class::Read || !takes_token || !matches!(self.reason, Reason::Action(_)) {
            return Ok(None);
        }
        if asked.body.is_some_and(|body| body.len() > OWN_BODY_BYTES_MAX) {
            return Err(Fault::BodyTooLarge);
        }
        let parameters = Parameters::of(asked);
        match parameters.one("Token").map_err(|_| Fault::ActionAmbiguous(TWO_TOKENS))? {
            Some(text) if !text.is_empty() => Token::decode(text).map(Some).ok_or(Fault::TokenInvalid),
            _ if self.rule.issuer_only() => Err(Fault::TokenMissing),
            _ => Ok(None),
        }
    }
}

/// The octets that a text in the standard alphabet stands for; `None` if it is not to the letter what an encoder writes.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    if text.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let letters = match text {
        [letters @ .., b'=', b'='] if text.len().is_multiple_of(4) => letters,
        [letters @ .., b'='] if text.len().is_multiple_of(4) => letters,
        letters => letters,
    };
    let mut plain = Vec::with_capacity(letters.len() * 3 / 4);
    let (mut bits, mut count) = (0_u32, 0);
    for letter in letters {
        bits = bits << 6 | u32::from(sextet(*letter)?);
        count += 6;
        if count >= 8 {
            count -= 8;
            plain.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    // A single letter is no octet, and what is left over is zero.
    (count < 6 && bits == 0).then_some(plain)
}

const fn sextet(letter: u8) -> Option<u8> {
    match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

/// A host as a configuration spells it, brackets included.
fn host_of(text: &str) -> Option<String> {
    let bare = text.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
    if let Some(inner) = bare {
        return inner.parse::<Ipv6Addr>().ok().map(|address| format!("[{address}]"));
    }
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => Some(address.to_string()),
        Ok(IpAddr::V6(address)) => Some(format!("[{address}]")),
        Err(_) => {
            let name = text.strip_suffix('.').unwrap_or(text);
            let fits = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_' | b'.');
            ((1..=253).contains(&name.len()) && name.bytes().all(fits)).then(|| name.to_ascii_lowercase())
        }
    }
}

const TWO_TOKENS: &str = "Token is given twice, with two values. Ask for one at a time.";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    fn issuer(text: &str) -> Option<String> {
        Token::decode(text).map(|token| token.issuer.into())
    }

    /// Slow and plain: every octet as eight binary digits, cut into sixes.
    fn encode(plain: &[u8]) -> String {
        let mut digits: String = plain.iter().map(|octet| format!("{octet:08b}")).collect();
        while !digits.len().is_multiple_of(6) {
            digits.push('0');
        }
        let letter = |six: &[u8]| {
            let six = std::str::from_utf8(six).expect("digits");
            char::from(ALPHABET[usize::from_str_radix(six, 2).expect("six digits")])
        };
        let mut text: String = digits.as_bytes().chunks(6).map(letter).collect();
        while !text.len().is_multiple_of(4) {
            text.push('=');
        }
        text
    }

    /// Slow and plain: the text is right if it is what encoding gives, with or without its padding.
    fn decode_slowly(text: &str) -> Option<Vec<u8>> {
        let letters = text.trim_end_matches('=');
        let mut digits = String::new();
        for letter in letters.bytes() {
            let six = ALPHABET.iter().position(|known| *known == letter)?;
            digits += &format!("{six:06b}");
        }
        let octets = digits.as_bytes().chunks_exact(8);
        let plain: Vec<u8> = octets
            .map(|octet| u8::from_str_radix(std::str::from_utf8(octet).expect("digits"), 2).expect("eight digits"))
            .collect();
        let right = encode(&plain);
        (text == right || text == right.trim_end_matches('=')).then_some(plain)
    }

    #[test]
    fn the_published_sample() {
        let text = "MTAuMi4xMDUuMzQ6MTIzNDpGRVRDSDoxNDAyOTU3MzY4";
        assert_eq!(issuer(text).as_deref(), Some("10.2.105.34:1234"));
        assert_eq!(encode(b"10.2.105.34:1234:FETCH:1402957368"), text);
    }

    #[test]
    fn what_a_token_may_say() {
        for (plain, found) in [
            ("a:1:q:0", Some("a:1")),
            ("Content-1.Example:9100:FETCH:1", Some("content-1.example:9100")),
            ("name.:9100:FETCH:1", Some("name:9100")),
            ("::1:9100:FETCH:1", Some("[::1]:9100")),
            ("[2001:DB8::2]:9100:FETCH:1", Some("[2001:db8::2]:9100")),
            ("h:65535:my-queue_2:18446744073709551615", Some("h:65535")),
            ("", None),
            (":9100:FETCH:1", None),
            ("h:0:FETCH:1", None),
            ("h:65536:FETCH:1", None),
            ("h:+80:FETCH:1", None),
            ("h::FETCH:1", None),
            ("h:80::1", None),
            ("h:80:FETCH:", None),
            ("h:80:FETCH:x", None),
            ("h:80:FETCH:-1", None),
            ("h:80:FE TCH:1", None),
            ("h:80:FETCH", None),
            ("h h:80:FETCH:1", None),
            ("h/x:80:FETCH:1", None),
            ("[h]:80:FETCH:1", None),
            ("h:80:FETCH:111111111111111111111", None),
            ("h\n:80:FETCH:1", None),
        ] {
            assert_eq!(issuer(&encode(plain.as_bytes())).as_deref(), found, "{plain}");
        }
        assert_eq!(issuer(&encode(b"\xffh:80:FETCH:1")), None);
        assert_eq!(issuer(&encode(format!("{}:80:FETCH:1", "h".repeat(254)).as_bytes())), None);
        assert_eq!(issuer(&"QUFB".repeat(TOKEN_BYTES_MAX / 4 + 1)), None, "not even looked at");
    }

    #[test]
    fn what_no_encoder_writes_is_no_token() {
        let (padded, bare) = ("YToxOnE6MA==", "YToxOnE6MA");
        assert_eq!(issuer(padded).as_deref(), Some("a:1"));
        assert_eq!(issuer(bare).as_deref(), Some("a:1"));
        for text in [
            "YToxOnE6MA=",
            "YToxOnE6MA===",
            "=YToxOnE6MA=",
            "YToxOnE6MB==",
            "YToxOnE6MB",
            "YToxOnE6MA==\n",
            " YToxOnE6MA==",
            "YTox OnE6MA==",
            "YToxOnE6M",
            "YTox-nE6MA==",
            "YToxOnE6MA==,YToxOnE6MA==",
            "=",
            "====",
        ] {
            assert_eq!(issuer(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn both_decoders_agree(text in "[A-Za-z0-9+/=_ -]{0,24}") {
            prop_assert_eq!(base64(text.as_bytes()), decode_slowly(&text));
        }

        #[test]
        fn what_is_encoded_is_decoded(plain in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(base64(encode(&plain).as_bytes()), Some(plain));
        }

        #[test]
        fn any_text_is_judged(text in ".{0,64}") {
            let _ = Token::decode(&text);
        }
    }
}
