//! A request written on one line, and what the rules make of it: for `antiphon check --classify`.

use super::{Asked, Into, Rules, Verdict};
use crate::error::Fault;

/// What whoever did not write a request is told.
pub const HOW_WRITTEN: &str = "write METHOD TARGET, as in \"GET /action=Query&Text=x\"";

/// A request written on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written<'t> {
    method: &'t str,
    target: &'t str,
    body: Option<String>,
}

impl<'t> Written<'t> {
    /// Is it one at all? Of one word that is no path, nobody knows whether it is the method or the target.
    #[must_use]
    pub fn is_written(text: &str) -> bool {
        let mut words = text.split_whitespace();
        words.next().is_some_and(|first| first.starts_with('/') || words.next().is_some())
    }

    /// Reads `METHOD target [body]`; without a method it is a GET. `\\r` and `\\n` in the body stand for line ends.
    #[must_use]
    pub fn read(text: &'t str) -> Self {
        let text = text.trim();
        let (method, rest) = match text.starts_with('/') {
            true => ("GET", text),
            false => text.split_once(char::is_whitespace).unwrap_or((text, "/")),
        };
        let (target, body) = match rest.trim_start().split_once(char::is_whitespace) {
            Some((target, body)) => (target, Some(body.trim_start().replace("\\r", "\r").replace("\\n", "\n"))),
            None => (rest.trim_start(), None),
        };
        Self { method, target, body }
    }

    /// The request, its body read.
    #[must_use]
    pub fn asked(&self) -> Asked<'_> {
        let asked = Asked::bare(self.method.as_bytes(), self.target.as_bytes());
        match &self.body {
            Some(body) => asked.with_body(body.as_bytes()),
            None => asked,
        }
    }
}

/// Class, rule and reason of a request that is written as `METHOD target [body]`; without a method it is a GET. Only a
/// form can be given as body; `\r` and `\n` in it stand for line ends.
///
/// ```
/// use antiphon::action::{Class, Dialect, RuleSet, Rules, explain};
/// let rules = Rules::new(Dialect::Aci, RuleSet::Idol, Vec::new(), Class::Change)?;
/// let text = explain(&rules, "GET /action=Query&Text=x").expect("one reading");
/// assert!(text.starts_with("class   read\n"), "{text}");
/// # Ok::<(), antiphon::action::RuleError>(())
/// ```
///
/// # Errors
/// As [`Rules::classify`] and [`Decision::token`](super::Decision::token): the request would be refused.
pub fn explain(rules: &Rules, request_text: &str) -> Result<String, Fault> {
    let written = Written::read(request_text);
    let asked = written.asked();
    let Verdict::Decided(decision) = rules.classify(&asked)? else {
        unreachable!("no body is missing");
    };
    let name = if decision.name.as_str().is_empty() { "(none)" } else { decision.name.as_str() };
    let mut lines = format!(
        "class   {}\naction  {name}\nrule    {} ({})\nreason  {}\n",
        decision.class, decision.rule, decision.origin, decision.reason
    );
    if matches!(decision.class, super::Class::Change | super::Class::LiveChange) {
        lines += &format!("unknown outcome  {}", decision.rule.unknown_outcome());
        let applied: Vec<String> = decision.applied().iter().map(u16::to_string).collect();
        if !applied.is_empty() {
            lines += &format!(" (sent again, {} means applied before)", applied.join(" or "));
        }
        lines.push('\n');
    }
    if let Some(injection) = &decision.injection {
        let place = match injection.into {
            Into::Target => "the target",
            Into::Body => "the form in the body",
        };
        let inject = injection.inject;
        lines += &format!("injects  {} with {} random digits, in {place}\n", inject.parameter, inject.digits);
    }
    if let Some(token) = decision.token(&asked)? {
        let times = if decision.rule.issuer_only() { ", and never twice" } else { "" };
        lines += &format!("to      the child that issued its token, {}{times}\n", token.issuer);
    }
    if decision.class == super::Class::Refuse {
        let refusal = decision.rule.refusal();
        lines += &format!("answer  {} {}\n", refusal.status(), refusal.code());
    }
    Ok(lines)
}
