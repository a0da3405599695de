//! The set `http`: what a method does, by RFC 9110 9 and RFC 4918 9, and what its repetition answers.
//!
//! Methods that are not here (PROPPATCH, REPORT, whatever a server invents) follow the setting `unknown`, a change
//! unless the operator says otherwise; the set `webdav` knows more of them. A search by POST is a change to this set: only the operator knows better.

use crate::action::rules::{Rule, RuleError};
use crate::action::{Class, UnknownOutcome};
use crate::error::Fault;

/// Methods, and the answers that on a change sent again mean that it was applied before.
const IDEMPOTENT: &[(&[&str], &[u16])] = &[
    (&["PUT", "COPY"], &[]),
    // The thing is gone already.
    (&["DELETE"], &[404, 410]),
    // RFC 4918 9.3.1: 405 where the collection exists.
    (&["MKCOL"], &[405]),
    // The source is gone already.
    (&["MOVE"], &[404]),
];

pub(super) fn rules() -> Result<Vec<Rule>, RuleError> {
    let mut rules = vec![Rule::http(&["GET", "HEAD", "OPTIONS"], "*", Class::Read)?.with_safe(true)];
    for (methods, applied) in IDEMPOTENT {
        let rule = Rule::http(methods, "*", Class::Change)?;
        rules.push(rule.with_unknown_outcome(UnknownOutcome::Idempotent).with_applied(applied));
    }
    // Nothing is known of these: never sent again.
    rules.push(Rule::http(&["POST", "PATCH"], "*", Class::Change)?);
    // Every child would give out a token of its own.
    rules.push(Rule::http(&["LOCK", "UNLOCK"], "*", Class::Refuse)?.with_refusal(Fault::LockRefused));
    Ok(rules)
}
