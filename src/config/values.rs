//! Single values: durations, sizes, counts, names, addresses, words of a list.
//!
//! Each function makes a judge: what takes a TOML value and gives the typed one, or says what is wrong with it and
//! what to write instead. Where the value stands is known to the caller alone.

use std::fmt::Display;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use toml::de::DeValue;

use super::error::Wrong;
use crate::limits::NAME_BYTES_MAX;

/// The typed value, or what is wrong.
pub(super) type Judged<T> = Result<T, Wrong>;

/// A host name or address with a port, as `10.0.0.1:9100`, `name:9100` or `[::1]:9100`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct HostPort {
    /// Lower case, without brackets; an address in its canonical spelling.
    pub(super) host: String,
    pub(super) port: u16,
}

const DURATION_HELP: &str = "write a number and a unit: \"250ms\", \"10s\", \"5m\", \"1h\", \"2d\"";
const SIZE_HELP: &str = "write octets, or a number and a unit: 4096, \"64KiB\", \"16MiB\", \"2GiB\"";

/// What kind of value this is, with its article.
pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

/// Any string.
pub(super) fn text<'v>(value: &'v DeValue<'_>) -> Judged<&'v str> {
    value.as_str().ok_or_else(|| Wrong::new(format!("{} where a string belongs", kind(value)), "put it in quotes"))
}

/// A string that is not empty and has nothing but printable characters in it.
pub(super) fn plain<'v>(value: &'v DeValue<'_>) -> Judged<&'v str> {
    let text = text(value)?;
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(Wrong::new("a string that is empty or has control characters in it", "write plain characters"));
    }
    Ok(text)
}

/// `true` or `false`.
pub(super) fn boolean(value: &DeValue<'_>) -> Judged<bool> {
    value.as_bool().ok_or_else(|| {
        Wrong::new(format!("{} where `true` or `false` belongs", kind(value)), "write true or false, without quotes")
    })
}

/// An array, each item judged by `judge`; the first wrong item is what is wrong.
pub(super) fn list<'v, T>(
    judge: impl Fn(&'v DeValue<'v>) -> Judged<T>,
) -> impl FnOnce(&'v DeValue<'v>) -> Judged<Vec<T>> {
    move |value| {
        let array = value.as_array().ok_or_else(|| {
            Wrong::new(format!("{} where an array belongs", kind(value)), "put it in square brackets: [\"…\", \"…\"]")
        })?;
        array.iter().map(|item| judge(item.get_ref())).collect()
    }
}

/// A whole number within `bounds`.
pub(super) fn integer(bounds: RangeInclusive<u64>) -> impl Fn(&DeValue<'_>) -> Judged<u64> {
    move |value| {
        let integer = value.as_integer().ok_or_else(|| {
            Wrong::new(format!("{} where an integer belongs", kind(value)), "write a whole number without quotes")
        })?;
        let found = i128::from_str_radix(integer.as_str(), integer.radix()).ok();
        match found.and_then(|found| u64::try_from(found).ok()).filter(|found| bounds.contains(found)) {
            Some(found) => Ok(found),
            None => Err(out_of_bounds(integer, bounds.start(), bounds.end())),
        }
    }
}

/// A duration within `bounds`.
pub(super) fn duration(bounds: RangeInclusive<Duration>) -> impl Fn(&DeValue<'_>) -> Judged<Duration> {
    move |value| {
        let text = match value {
            DeValue::Integer(_) | DeValue::Float(_) => {
                return Err(Wrong::new("a duration without a unit", DURATION_HELP));
            }
            other => text(other).map_err(|wrong| Wrong { help: DURATION_HELP.to_owned(), ..wrong })?,
        };
        let (digits, unit) = number_and_unit(text);
        let unit_ms: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(Wrong::new(format!("{text:?} is not a duration"), DURATION_HELP)),
        };
        if digits.is_empty() {
            return Err(Wrong::new(format!("{text:?} is not a duration"), DURATION_HELP));
        }
        // Only digits are left, so what does not parse is too large, as what overflows is.
        let found =
            digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_ms)).map(Duration::from_millis);
        found
            .filter(|found| bounds.contains(found))
            .ok_or_else(|| out_of_bounds(text, &Spelled(*bounds.start()), &Spelled(*bounds.end())))
    }
}

/// Octets within `bounds`.
pub(super) fn size(bounds: RangeInclusive<u64>) -> impl Fn(&DeValue<'_>) -> Judged<u64> {
    move |value| {
        if value.is_integer() {
            return integer(bounds.clone())(value);
        }
        let text = text(value).map_err(|wrong| Wrong { help: SIZE_HELP.to_owned(), ..wrong })?;
        let (digits, unit) = number_and_unit(text);
        let shift = match unit {
            "" | "B" => 0,
            "KiB" => 10,
            "MiB" => 20,
            "GiB" => 30,
            "TiB" => 40,
            _ => return Err(Wrong::new(format!("{text:?} is not a size"), SIZE_HELP)),
        };
        if digits.is_empty() {
            return Err(Wrong::new(format!("{text:?} is not a size"), SIZE_HELP));
        }
        let found = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
        found
            .filter(|found| bounds.contains(found))
            .ok_or_else(|| out_of_bounds(text, &Octets(*bounds.start()), &Octets(*bounds.end())))
    }
}

/// One of `all`, by the word that `spell` gives it. `what` names them in the plural. `later` are words that a later
/// version will know, each with what to write until then; a value of such a word is not taken either.
pub(super) fn word<T: Copy>(
    what: &'static str,
    all: &'static [T],
    spell: impl Fn(T) -> &'static str,
    later: &'static [(&'static str, &'static str)],
) -> impl Fn(&DeValue<'_>) -> Judged<T> {
    move |value| {
        let found = text(value)?;
        if let Some((_, advice)) = later.iter().find(|(word, _)| *word == found) {
            return Err(Wrong::new(format!("\"{found}\" is not in this version"), *advice));
        }
        if let Some(meant) = all.iter().find(|meant| spell(**meant) == found) {
            return Ok(*meant);
        }
        let now = |word: &&str| later.iter().all(|(late, _)| late != word);
        let words: Vec<&'static str> = all.iter().map(|meant| spell(*meant)).filter(now).collect();
        let near = did_you_mean(found, &words);
        let space = if near.is_empty() { "" } else { " " };
        let help = format!("{near}{space}{what}: {}", words.join(", "));
        Err(Wrong::new(format!("{found:?} is none of the {what}"), help))
    }
}

/// A name: it becomes a metric's label and a part of an admin path.
pub(super) fn name(found: &str) -> Judged<&str> {
    let fits = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'.' | b'_' | b'-');
    let length = found.len();
    if length == 0 || length > NAME_BYTES_MAX || !found.bytes().all(fits) || found.bytes().all(|octet| octet == b'.') {
        let message = format!("{found:?} cannot be a name");
        return Err(Wrong::new(message, format!("use letters, digits, '.', '_' and '-', at most {NAME_BYTES_MAX}")));
    }
    Ok(found)
}

/// An address of this machine to listen on.
pub(super) fn socket_address(value: &DeValue<'_>) -> Judged<SocketAddr> {
    const HELP: &str =
        "write \"0.0.0.0:9060\" for all of IPv4, \"[::]:9060\" for all, or one address: \"127.0.0.1:9060\"";
    let found = text(value)?;
    let address: SocketAddr =
        found.parse().map_err(|_| Wrong::new(format!("{found:?} is not an address and a port"), HELP))?;
    if address.port() == 0 {
        return Err(Wrong::new("port 0 is any port", "name the port, 1 to 65535"));
    }
    Ok(address)
}

/// Where a child is: a name or an address, and a port.
pub(super) fn host_port(value: &DeValue<'_>) -> Judged<HostPort> {
    const HELP: &str = "write \"10.0.0.1:9100\", \"name.example:9100\" or \"[2001:db8::1]:9100\"";
    let found = text(value)?;
    let wrong = |why: &str| Wrong::new(format!("{found:?} {why}"), HELP);
    if found.contains("://") || found.contains('/') {
        return Err(wrong("is a URL where a host and a port belong"));
    }
    let Some((host, port)) = found.rsplit_once(':') else {
        return Err(wrong("has no port"));
    };
    if found.parse::<Ipv6Addr>().is_ok() {
        return Err(wrong("is an IPv6 address without brackets"));
    }
    let port = match port.parse::<u16>() {
        Ok(port) if port > 0 && port_is_digits(found) => port,
        _ => return Err(wrong("has no port from 1 to 65535")),
    };
    let host = match host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
        Some(inner) => {
            let address: Ipv6Addr = inner.parse().map_err(|_| wrong("has no IPv6 address in its brackets"))?;
            address.to_string()
        }
        None => match host.parse::<IpAddr>() {
            Ok(address) => address.to_string(),
            Err(_) => host_name(host).ok_or_else(|| wrong("has no valid host name"))?,
        },
    };
    Ok(HostPort { host, port })
}

/// A host name in lower case, if it can be one (RFC 1123 2.1; `_` as found in the names of container networks). A name
/// of digits and dots alone would be a misspelt address.
pub(super) fn host_name(found: &str) -> Option<String> {
    let label_fits = |label: &str| {
        let ends = !label.starts_with('-') && !label.ends_with('-');
        let inner = label.bytes().all(|octet| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_'));
        (1..=63).contains(&label.len()) && ends && inner
    };
    let bare = found.strip_suffix('.').unwrap_or(found);
    let digits = bare.rsplit('.').next().is_some_and(|last| last.bytes().all(|octet| octet.is_ascii_digit()));
    (bare.len() <= 253 && !digits && bare.split('.').all(label_fits)).then(|| bare.to_ascii_lowercase())
}

/// `did you mean "…"?` with the word nearest to `found`; empty if none is near.
pub(super) fn did_you_mean(found: &str, words: &[&str]) -> String {
    let plain = |word: &str| word.to_ascii_lowercase().replace(['_', '-', ' '], "");
    let found = plain(found);
    let near = words
        .iter()
        .map(|word| (distance(&found, &plain(word)), *word))
        .filter(|(distance, word)| *distance <= if word.len() > 4 { 2 } else { 1 })
        .min_by_key(|(distance, _)| *distance);
    near.map_or_else(String::new, |(_, word)| format!("did you mean \"{word}\"?"))
}

/// Letters to insert, drop or change to make `b` of `a`; words beyond 32 letters are far from everything.
fn distance(a: &str, b: &str) -> usize {
    if a.len() > 32 || b.len() > 32 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

fn number_and_unit(text: &str) -> (&str, &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    (&text[..digits], text[digits..].trim_start_matches(' '))
}

/// `u16::from_str` takes a plus sign; a port does not.
fn port_is_digits(host_port: &str) -> bool {
    host_port.rsplit(':').next().is_some_and(|port| port.bytes().all(|octet| octet.is_ascii_digit()))
}

fn out_of_bounds(found: impl Display, least: &impl Display, most: &impl Display) -> Wrong {
    Wrong::new(format!("{found} is out of bounds"), format!("write a value from {least} to {most}"))
}

/// A duration as a configuration writes it.
pub(super) struct Spelled(pub(super) Duration);

impl Display for Spelled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = self.0.as_millis();
        match [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")]
            .iter()
            .find(|(unit, _)| ms.is_multiple_of(*unit))
        {
            Some((unit, name)) if ms > 0 => write!(f, "{}{name}", ms / unit),
            _ => write!(f, "{ms}ms"),
        }
    }
}

/// A size as a configuration writes it.
pub(super) struct Octets(pub(super) u64);

impl Display for Octets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")]
            .iter()
            .find(|(shift, _)| self.0.is_multiple_of(1 << shift))
        {
            Some((shift, name)) if self.0 > 0 => write!(f, "{}{name}", self.0 >> shift),
            _ => write!(f, "{}B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(text: &str) -> DeValue<'_> {
        DeValue::String(text.into())
    }

    #[test]
    fn durations_have_units() {
        let judge = duration(Duration::ZERO..=Duration::from_secs(86_400));
        assert_eq!(judge(&string("250ms")), Ok(Duration::from_millis(250)));
        assert_eq!(judge(&string("10 s")), Ok(Duration::from_secs(10)));
        assert_eq!(judge(&string("1h")), Ok(Duration::from_secs(3600)));
        for bad in
            ["", "10", "s", "1.5s", "-1s", "10S", "1h30m", "18446744073709551615d", "99999999999999999999s", "2d"]
        {
            assert!(judge(&string(bad)).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn sizes_are_binary() {
        let judge = size(1..=1 << 40);
        assert_eq!(judge(&string("16MiB")), Ok(16 << 20));
        assert_eq!(judge(&string("1TiB")), Ok(1 << 40));
        assert_eq!(judge(&string("512")), Ok(512));
        for bad in ["", "0", "16MB", "16m", "-1", "2TiB", "18446744073709551615GiB"] {
            assert!(judge(&string(bad)).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn children_have_a_host_and_a_port() {
        let host = |found: &str| host_port(&string(found)).map(|it| (it.host, it.port)).map_err(|wrong| wrong.message);
        assert_eq!(host("10.0.0.1:9100"), Ok(("10.0.0.1".into(), 9100)));
        assert_eq!(host("Kv-1.Example:80"), Ok(("kv-1.example".into(), 80)));
        assert_eq!(host("[0:0::1]:80"), Ok(("::1".into(), 80)));
        for bad in [
            "",
            ":80",
            "a",
            "a:",
            "a:0",
            "a:+80",
            "a:65536",
            "http://a:80",
            "a/b:80",
            "::1",
            "::1:80",
            "[::1]",
            "[a]:80",
            "10.0.0.256:80",
            "1.2.3:80",
            "a b:80",
            "-a:80",
            "a..b:80",
            "a:b:80",
        ] {
            assert!(host(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn the_nearest_word_is_offered() {
        let words = ["least_conn", "p2c", "failover"];
        assert_eq!(did_you_mean("leastconn", &words), "did you mean \"least_conn\"?");
        assert_eq!(did_you_mean("fail-over", &words), "did you mean \"failover\"?");
        assert_eq!(did_you_mean("predictive", &words), "");
    }

    #[test]
    fn values_are_spelled_as_written() {
        assert_eq!(Spelled(Duration::from_millis(1500)).to_string(), "1500ms");
        assert_eq!(Spelled(Duration::from_secs(90)).to_string(), "90s");
        assert_eq!(Spelled(Duration::ZERO).to_string(), "0ms");
        assert_eq!(Octets(16 << 20).to_string(), "16MiB");
        assert_eq!(Octets(1000).to_string(), "1000B");
    }
}
