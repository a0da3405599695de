//! The dialect `http`: the method and the path are the action.
//!
//! A path is matched as it came. Where it holds what servers are known to read differently (percent-encoding, empty and
//! dot segments, backslashes, parameters of segments), every such reading is matched too, and if they differ in what
//! they do, the request is refused. The same goes for a field that asks for another method. Where no rule asks for the
//! path, none of this is looked at: then the method alone decides, and every path is somebody's.

use super::form::decode_octet;
use super::name::ActionName;
use super::rules::{Rule, Rules};
use super::{Asked, Decision, Precondition, Reason, Verdict};
use crate::error::Fault;

pub(super) fn classify<'r>(rules: &'r Rules, asked: &Asked<'_>) -> Result<Verdict<'r>, Fault> {
    let path = asked.target.split(|octet| matches!(octet, b'?' | b'#')).next().unwrap_or_default();
    let Some((origin, rule)) = rules.of_path(asked, asked.method, path)? else { return Ok(Verdict::NeedBody) };
    if (asked.method_override.is_some() || rules.paths_matter()) && !check_methods(rules, asked, path, rule)? {
        return Ok(Verdict::NeedBody);
    }
    let name = ActionName::of_method(asked.method);
    let (class, conditional) = (rule.class(), asked.condition != Precondition::None);
    Ok(Verdict::Decided(Decision {
        class,
        rule,
        origin,
        reason: Reason::MethodAndPath,
        name,
        conditional,
        injection: None,
    }))
}

/// False: the body must be there first.
fn check_methods(rules: &Rules, asked: &Asked<'_>, path: &[u8], rule: &Rule) -> Result<bool, Fault> {
    let is_odd = rules.paths_matter() && is_odd(path);
    for method in [Some(asked.method), asked.method_override].into_iter().flatten() {
        match rules.of_path(asked, method, path)? {
            None => return Ok(false),
            Some((_, other)) if !other.does_the_same_as(rule) => return Err(Fault::ActionAmbiguous(OVERRIDE)),
            Some(_) => {}
        }
        if is_odd && !check_readings(rules, asked, method, path, rule)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether some server may read the path as another one. All of these cost a regular path nothing.
fn is_odd(path: &[u8]) -> bool {
    path.iter().any(|octet| matches!(octet, b'%' | b'\\' | b';'))
        || path.windows(2).any(|pair| matches!(pair, b"//" | b"/."))
}

#[cold]
fn check_readings(rules: &Rules, asked: &Asked<'_>, method: &[u8], path: &[u8], rule: &Rule) -> Result<bool, Fault> {
    let decoded = decoded(path);
    if decoded.contains(&0) {
        return Err(Fault::ActionAmbiguous(NUL));
    }
    let tidy = (0..8).map(|how| Tidy::nth(how).path(&decoded));
    for reading in std::iter::once(decoded.clone()).chain(tidy) {
        match rules.of_path(asked, method, &reading)? {
            None => return Ok(false),
            Some((_, other)) if !other.does_the_same_as(rule) => return Err(Fault::ActionAmbiguous(PATH)),
            Some(_) => {}
        }
    }
    Ok(true)
}

/// Decodes once what is validly encoded. A plus stands for itself in a path.
fn decoded(path: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(path.len());
    let mut at = 0;
    while at < path.len() {
        let (octet, taken) = match path[at] {
            b'%' => decode_octet(&path[at..]).unwrap_or((b'%', 1)),
            octet => (octet, 1),
        };
        text.push(octet);
        at += taken;
    }
    text
}

/// What a server may do to a path besides resolving its dot segments (RFC 3986 5.2.4).
struct Tidy {
    merges_slashes: bool,
    turns_backslashes: bool,
    drops_parameters: bool,
}

impl Tidy {
    const fn nth(bits: u8) -> Self {
        Self { merges_slashes: bits & 1 != 0, turns_backslashes: bits & 2 != 0, drops_parameters: bits & 4 != 0 }
    }

    fn path(&self, decoded: &[u8]) -> Vec<u8> {
        let ends_segment = |octet: &u8| *octet == b'/' || (self.turns_backslashes && *octet == b'\\');
        let mut kept: Vec<&[u8]> = Vec::new();
        let mut is_directory = false;
        for segment in decoded.strip_prefix(b"/").unwrap_or(decoded).split(ends_segment) {
            let bare = segment.split(|octet| *octet == b';').next().unwrap_or_default();
            let segment = if self.drops_parameters { bare } else { segment };
            is_directory = matches!(segment, b"" | b"." | b"..");
            match segment {
                b"." => {}
                b".." => drop(kept.pop()),
                b"" if self.merges_slashes => {}
                _ => kept.push(segment),
            }
        }
        let mut path = Vec::with_capacity(decoded.len() + 1);
        for segment in &kept {
            path.push(b'/');
            path.extend_from_slice(segment);
        }
        if path.is_empty() || (is_directory && !path.ends_with(b"/")) {
            path.push(b'/');
        }
        path
    }
}

// What the client is told.
const PATH: &str = "The path can be read in more than one way, and the rules differ on them. Send it plain: no encoded \
    letters or slashes, no empty or dot segments.";
const NUL: &str = "The path holds an encoded NUL, where some servers end it. Remove it.";
const OVERRIDE: &str =
    "A field asks for another method than the request's, and the rules differ on them. Send that method.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_of_a_path() {
        let all = |path: &[u8]| {
            let mut readings: Vec<String> =
                (0..8).map(|how| String::from_utf8_lossy(&Tidy::nth(how).path(&decoded(path))).into_owned()).collect();
            readings.sort();
            readings.dedup();
            readings
        };
        assert_eq!(all(b"/a/b/"), ["/a/b/"]);
        assert_eq!(all(b"/a/./b/%2e%2e/c%2Fd"), ["/a/c/d"]);
        assert_eq!(all(b"/../.."), ["/"]);
        assert_eq!(all(b"//a"), ["//a", "/a"]);
        assert_eq!(all(b"/a//../b"), ["/a/b", "/b"]);
        assert_eq!(all(b"/a\\b"), ["/a/b", "/a\\b"]);
        assert_eq!(all(b"/a;x/b"), ["/a/b", "/a;x/b"]);
        assert_eq!(all(b"/a/..;/b"), ["/a/..;/b", "/b"]);
        assert_eq!(all(b"/100%/%zz+"), ["/100%/%zz+"]);
    }
}
