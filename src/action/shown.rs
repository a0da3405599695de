//! A request as one line, for whoever looks at what was asked lately: its parameters as they came, cut at a bound, and
//! without credentials.
//!
//! Kept as octets and masked only when somebody looks: requests are many, looks are few.

use super::Asked;
use super::name::decode_leniently;
use super::params::word_and_params;
use crate::limits::REQUEST_SHOWN_BYTES_MAX;

/// What a parameter's name holds, in lower case, if its value is nobody's business.
const SECRETS: &[&str] =
    &["password", "passwd", "passphrase", "pwd", "secret", "credential", "securityinfo", "authorization", "apikey"];
const MASK: &[u8] = b"****";

impl Asked<'_> {
    /// Appends the target's parameters to `out`, which stays within [`REQUEST_SHOWN_BYTES_MAX`].
    pub fn show_target(&self, out: &mut Vec<u8>) {
        let target = self.target.strip_prefix(b"/").unwrap_or(self.target);
        append(out, target.strip_prefix(b"?").unwrap_or(target));
    }

    /// Appends those of a form in the body, if it has been read; other bodies are not shown.
    pub fn show_body(&self, out: &mut Vec<u8>) {
        let (kind, _) = word_and_params(self.content_type.unwrap_or_default());
        let is_form = [&b""[..], b"text/plain", b"application/x-www-form-urlencoded"]
            .iter()
            .any(|known| kind.eq_ignore_ascii_case(known));
        let Some(body) = self.body.filter(|body| is_form && !body.is_empty()) else { return };
        if !out.is_empty() {
            append(out, b"&");
        }
        append(out, body);
    }
}

/// What was kept of a request, with line ends as `&`, and with the values of credentials masked.
#[must_use]
pub fn masked(kept: &[u8]) -> String {
    let mut shown = Vec::with_capacity(kept.len());
    for (number, pair) in kept.split(|octet| matches!(octet, b'&' | b'\r' | b'\n')).enumerate() {
        if number > 0 {
            shown.push(b'&');
        }
        match secret_from(pair) {
            Some(at) => {
                shown.extend_from_slice(&pair[..at]);
                shown.extend_from_slice(MASK);
            }
            None => shown.extend_from_slice(pair),
        }
    }
    String::from_utf8_lossy(&shown).into_owned()
}

fn append(out: &mut Vec<u8>, octets: &[u8]) {
    let room = REQUEST_SHOWN_BYTES_MAX.saturating_sub(out.len());
    out.extend_from_slice(&octets[..octets.len().min(room)]);
}

/// Where a credential begins. Some servers end a pair at a semicolon, and a path ends at a question mark; to others
/// these belong to the value. So a name is looked for behind each, and the value goes to the pair's end.
fn secret_from(pair: &[u8]) -> Option<usize> {
    let mut at = 0;
    for piece in pair.split(|octet| matches!(octet, b';' | b'?')) {
        let equals = piece.iter().position(|octet| *octet == b'=');
        if let Some(equals) = equals.filter(|equals| is_secret(&piece[..*equals])) {
            return Some(at + equals + 1);
        }
        at += piece.len() + 1;
    }
    None
}

fn is_secret(name: &[u8]) -> bool {
    // Twice, as a server might that another proxy stands in front of.
    let name = decode_leniently(&decode_leniently(name)).to_ascii_lowercase();
    SECRETS.iter().any(|secret| name.windows(secret.len()).any(|window| window == secret.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(target: &str, kind: Option<&str>, body: &str) -> String {
        let mut asked = Asked::bare(b"POST", target.as_bytes());
        asked.content_type = kind.map(str::as_bytes);
        let mut out = Vec::new();
        asked.show_target(&mut out);
        asked.with_body(body.as_bytes()).show_body(&mut out);
        masked(&out)
    }

    #[test]
    fn target_and_form_are_one_line() {
        assert_eq!(shown("/action=Query&Text=a+b", None, ""), "action=Query&Text=a+b");
        assert_eq!(shown("/?Action=Query&&x=%3D", None, ""), "Action=Query&&x=%3D");
        assert_eq!(shown("/a=Query", Some("text/plain; charset=utf-8"), "Text=x\r\ny=z"), "a=Query&Text=x&&y=z");
        assert_eq!(shown("/", None, "a=Query"), "a=Query");
        assert_eq!(shown("/a=Query", Some("multipart/form-data; boundary=B"), "--B"), "a=Query");
        assert_eq!(shown("/a=Index", Some("application/json"), "{}"), "a=Index");
    }

    #[test]
    fn credentials_are_not_shown() {
        for (text, masked_text) in [
            ("a=UserAdd&Password=x&UserName=y", "a=UserAdd&Password=****&UserName=y"),
            ("a=UserAdd&newpassword=x;y=z&b=c", "a=UserAdd&newpassword=****&b=c"),
            ("a=UserAdd;PASSWORD=x", "a=UserAdd;PASSWORD=****"),
            ("x?Pass%77ord=y", "x?Pass%77ord=****"),
            ("x/%2550assword=y", "x/%2550assword=****"),
            ("SecurityInfo=abc==\r\nText=x", "SecurityInfo=****&&Text=x"),
            ("Security+Info=abc", "Security+Info=abc"),
            ("Password", "Password"),
            ("Password=", "Password=****"),
            ("Text=Password", "Text=Password"),
            ("Text=x=Password=y", "Text=x=Password=y"),
        ] {
            assert_eq!(masked(text.as_bytes()), masked_text);
        }
    }

    #[test]
    fn it_has_a_bound_and_shows_any_octets() {
        let long = format!("/action=Query&Text={}", "x".repeat(2 * REQUEST_SHOWN_BYTES_MAX));
        assert_eq!(shown(&long, None, "Password=x").len(), REQUEST_SHOWN_BYTES_MAX);
        assert_eq!(masked(b"a=\xff&%=\x00%"), "a=\u{fffd}&%=\0%");
    }
}
