//! The dialect `aci`: which action a request names, and where.
//!
//! All forms that clients use: `/action=X&…`, `/a=X`, `/?action=X`, a form in the body (also typed `text/plain`, also
//! under GET), one `name=value` a line, multipart, and parameters split between target and body. The rules of one
//! reading are told in `action.rs`; this file finds every place where an action may stand and asks `name.rs` about it.

use super::form::{Pair, Pairs, decode_octet};
use super::multipart::{self, Part};
use super::name::{ActionName, ParameterName};
use super::params::{Params, is_token, word_and_params};
use super::rules::Rules;
use super::{Asked, Class, Decision, Injection, Place, Precondition, Reason, Verdict};
use crate::error::Fault;

/// What has been found in a request so far.
struct Found<'r> {
    rules: &'r Rules,
    action: Option<(ActionName, Place)>,
    /// The conditions of the rules that some parameter meets.
    met: u64,
}

/// How a body is to be read.
enum Form<'a> {
    /// Pairs, separated by `&` or line ends.
    Pairs,
    /// Parts with this boundary.
    Parts(&'a [u8]),
    /// Typed as something that is no form.
    Opaque,
}

pub(super) fn classify<'r>(rules: &'r Rules, asked: &Asked<'_>) -> Result<Verdict<'r>, Fault> {
    let mut found = Found { rules, action: None, met: 0 };
    found.read_target(asked.target)?;
    if !asked.has_body && asked.body.is_none() {
        return Ok(Verdict::Decided(found.decide(asked)));
    }
    if found.action.is_some() {
        let by_target = found.decide(asked);
        // A change goes to every child with whatever it carries: the same octets in the same order.
        let is_settled = match by_target.class {
            Class::Refuse => true,
            Class::Change | Class::LiveChange => matches!(form_of(asked)?, Form::Opaque),
            Class::Read => false,
        };
        if is_settled {
            return Ok(Verdict::Decided(by_target));
        }
    }
    let form = form_of(asked)?;
    if asked.content_encoding.is_some_and(|coding| !coding.trim_ascii().eq_ignore_ascii_case(b"identity")) {
        return Err(Fault::ActionAmbiguous(ENCODED));
    }
    let Some(body) = asked.body else { return Ok(Verdict::NeedBody) };
    match form {
        Form::Pairs => Pairs::of_body(body).try_for_each(|pair| found.see_pair(&pair, Place::Form))?,
        Form::Parts(boundary) => multipart::for_each_part(body, boundary, |part| found.see_part(&part))?,
        Form::Opaque => Pairs::of_body(body).try_for_each(|pair| found.see_opaque(&pair))?,
    }
    Ok(Verdict::Decided(found.decide(asked)))
}

impl<'r> Found<'r> {
    fn decide(&self, asked: &Asked<'_>) -> Decision<'r> {
        let unknown = self.rules.unknown_match();
        let ((origin, rule), reason, name) = match &self.action {
            None => (unknown, Reason::NoAction, ActionName::EMPTY),
            Some((name, place)) => {
                let matched = self.rules.of_action(name, self.met);
                // A server that speaks both dialects would act on the method.
                match matched.1.class() == Class::Read && !reads(asked) {
                    true => (unknown, Reason::Method, *name),
                    false => (matched, Reason::Action(*place), *name),
                }
            }
        };
        let form = match reason {
            Reason::Action(Place::Form) => asked.body,
            _ => None,
        };
        let lacks = rule.inject().filter(|(_, mask)| self.met & mask == 0 && asked.target.starts_with(b"/"));
        let injection = lacks.map(|(inject, _)| Injection::new(inject, asked.target, form));
        let conditional = asked.condition != Precondition::None;
        Decision { class: rule.class(), rule, origin, reason, name, conditional, injection }
    }

    fn read_target(&mut self, target: &[u8]) -> Result<(), Fault> {
        if target.contains(&b'#') {
            return Err(Fault::ActionAmbiguous(FRAGMENT));
        }
        let (path, query) = match target.iter().position(|octet| *octet == b'?') {
            Some(mark) => (&target[..mark], Some(&target[mark + 1..])),
            None => (target, None),
        };
        if has_dot_segment(path) {
            return Err(Fault::ActionAmbiguous(DOT_SEGMENT));
        }
        let path = path.strip_prefix(b"/").unwrap_or(path);
        Pairs::of_path(path, query.is_some()).try_for_each(|pair| self.see_pair(&pair, Place::Target))?;
        Pairs::of_query(query.unwrap_or_default()).try_for_each(|pair| self.see_pair(&pair, Place::Target))
    }

    fn see_pair(&mut self, pair: &Pair<'_>, place: Place) -> Result<(), Fault> {
        let name = ParameterName::decode(pair.name)?;
        let certain = pair.value.filter(|_| !pair.ends_doubtfully);
        self.met |= self.rules.conditions_met(name.bare(), certain);
        let Some(value) = pair.value else {
            // Nothing names an action here, but a server that finds the parameter may not look for another.
            return if name.is_exactly_action() { Err(Fault::ActionMissing) } else { Ok(()) };
        };
        if !name.names_action()? {
            return Ok(());
        }
        if pair.begins_doubtfully || pair.ends_doubtfully {
            return Err(Fault::ActionAmbiguous(DOUBTFUL));
        }
        self.set_action(ActionName::decode(value)?, place)
    }

    fn see_part(&mut self, part: &Part<'_>) -> Result<(), Fault> {
        let name = ParameterName::decode(part.name)?;
        // In a part nothing is encoded, so that an encoded value is one that cannot be read with certainty.
        let certain = Some(part.content).filter(|text| !part.is_odd && !text.contains(&b'%') && !text.contains(&b'+'));
        self.met |= self.rules.conditions_met(name.bare(), certain);
        if !name.names_action()? {
            return Ok(());
        }
        if part.is_odd || part.name.contains(&b'%') {
            return Err(Fault::ActionAmbiguous(ODD_PART));
        }
        self.set_action(ActionName::literal(part.content)?, Place::Part)
    }

    /// A pair of a body that says it is no form. It may be anything; if a server could find an action, there are two
    /// readings.
    fn see_opaque(&mut self, pair: &Pair<'_>) -> Result<(), Fault> {
        let name = ParameterName::decode_loosely(pair.name);
        self.met |= self.rules.conditions_met(name.bare(), None);
        match pair.value.is_some() && name.may_name_action() {
            true => Err(Fault::ActionAmbiguous(OPAQUE)),
            false => Ok(()),
        }
    }

    fn set_action(&mut self, name: ActionName, place: Place) -> Result<(), Fault> {
        if self.action.is_some() {
            return Err(Fault::ActionAmbiguous(REPEATED));
        }
        if name.as_bytes() == b"encrypted" {
            return Err(Fault::ActionEncrypted);
        }
        self.action = Some((name, place));
        Ok(())
    }
}

/// Whether the method leaves it to the action what happens.
fn reads(asked: &Asked<'_>) -> bool {
    let is_reading = |method: &[u8]| matches!(method, b"GET" | b"HEAD" | b"POST" | b"OPTIONS");
    is_reading(asked.method) && asked.method_override.is_none_or(is_reading)
}

/// How the body's type says that it is to be read. Without a type it is a form: servers take it for one.
fn form_of<'a>(asked: &Asked<'a>) -> Result<Form<'a>, Fault> {
    if asked.repeated_type {
        return Err(Fault::ActionAmbiguous(TYPE));
    }
    let (kind, params) = word_and_params(asked.content_type.unwrap_or_default());
    if kind.is_empty() {
        return Ok(Form::Pairs);
    }
    let slash = kind.iter().position(|octet| *octet == b'/').ok_or(Fault::ActionAmbiguous(TYPE))?;
    if !is_token(&kind[..slash]) || !is_token(&kind[slash + 1..]) {
        return Err(Fault::ActionAmbiguous(TYPE));
    }
    if kind[..slash].eq_ignore_ascii_case(b"multipart") {
        return multipart::boundary(params).map(Form::Parts);
    }
    if kind.eq_ignore_ascii_case(b"application/x-www-form-urlencoded") || kind.eq_ignore_ascii_case(b"text/plain") {
        return if keeps_ascii(params) { Ok(Form::Pairs) } else { Err(Fault::ActionAmbiguous(CHARSET)) };
    }
    Ok(Form::Opaque)
}

/// Whether a type's parameters can be read, and name no charset in which ASCII letters are other octets.
pub(super) fn keeps_ascii(params: Params<'_>) -> bool {
    const KNOWN: [&[u8]; 6] = [b"utf-8", b"utf8", b"us-ascii", b"iso-8859-", b"windows-125", b"latin1"];
    let is_known = |charset: &[u8]| {
        KNOWN.iter().any(|known| charset.get(..known.len()).is_some_and(|start| start.eq_ignore_ascii_case(known)))
    };
    params
        .into_iter()
        .all(|param| param.is_ok_and(|(name, value)| !name.eq_ignore_ascii_case(b"charset") || is_known(value)))
}

/// Whether a path has a segment `.` or `..`, plain or encoded: a server that resolves it reads another path.
fn has_dot_segment(path: &[u8]) -> bool {
    if !path.contains(&b'.') && !path.contains(&b'%') {
        return false;
    }
    // Dots so far in a segment that has nothing else.
    let mut dots = Some(0_usize);
    let mut at = 0;
    while at < path.len() {
        let (octet, taken) = decode_octet(&path[at..]).unwrap_or((path[at], 1));
        at += taken;
        dots = match octet {
            // Some servers cut a segment at a semicolon.
            b'/' | b'\\' | b';' if matches!(dots, Some(1 | 2)) => return true,
            b'/' | b'\\' => Some(0),
            b'.' => dots.map(|count| count + 1),
            _ => None,
        };
    }
    matches!(dots, Some(1 | 2))
}

// What the client is told.
const REPEATED: &str = "The action is named twice, in the target, in the body, or in both. Name it once.";
const DOUBTFUL: &str =
    "A semicolon or a question mark stands beside the action. Separate parameters by &, and encode the rest.";
const FRAGMENT: &str = "The target has a fragment, which belongs to the client alone. Encode # as %23.";
const DOT_SEGMENT: &str = "The path has a segment `.` or `..`. Send the path that is meant.";
const TYPE: &str = "Content-Type or Content-Encoding is repeated, or Content-Type is no media type.";
const CHARSET: &str = "The body's charset is not one in which ASCII stands for itself. Send UTF-8.";
const ENCODED: &str = "The body is encoded, so that its action cannot be read. Send it without Content-Encoding.";
const ODD_PART: &str = "The part that names the action is a file, encoded, or not plain text. Send it as a plain part.";
const OPAQUE: &str =
    "A body whose type is no form seems to name an action. Send it as a form, or name the action in the target.";
