//! The set `webdav`: a tree of files by RFC 4918, its versions (RFC 3253) and searches (RFC 5323), as far as they read.
//!
//! What differs from the set `http`: PROPFIND, REPORT and SEARCH are reads, safe by their RFCs (RFC 4918 9.1, RFC 3253
//! 3.6, RFC 5323 2); PROPPATCH may be sent again (RFC 4918 9.2). Methods that are not here (ACL, VERSION-CONTROL, BIND, whatever
//! a server invents) follow the setting `unknown`, a change unless the operator says otherwise.
//!
//! LOCK and UNLOCK are refused: every child would give out a token of its own. What a server makes up for itself stays
//! different: entity tags, modification and creation dates, so that a change may not depend on them.

use crate::action::rules::{Rule, RuleError};
use crate::action::{Class, UnknownOutcome};
use crate::error::Fault;

/// Methods, and the answers that on a change sent again mean that it was applied before.
const IDEMPOTENT: &[(&[&str], &[u16])] = &[
    (&["PUT", "COPY", "PROPPATCH"], &[]),
    // The thing is gone already.
    (&["DELETE"], &[404, 410]),
    // RFC 4918 9.3.1: 405 where the collection exists.
    (&["MKCOL"], &[405]),
    // The source is gone already.
    (&["MOVE"], &[404]),
];

pub(super) fn rules() -> Result<Vec<Rule>, RuleError> {
    let reads = ["GET", "HEAD", "OPTIONS", "PROPFIND", "REPORT", "SEARCH"];
    let mut rules = vec![Rule::http(&reads, "*", Class::Read)?.with_safe(true)];
    for (methods, applied) in IDEMPOTENT {
        let rule = Rule::http(methods, "*", Class::Change)?;
        rules.push(rule.with_unknown_outcome(UnknownOutcome::Idempotent).with_applied(applied));
    }
    // Nothing is known of these: never sent again.
    rules.push(Rule::http(&["POST", "PATCH"], "*", Class::Change)?);
    rules.push(Rule::http(&["LOCK", "UNLOCK"], "*", Class::Refuse)?.with_refusal(Fault::LockRefused));
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use crate::action::tests::{asked, decided, outcome, set};
    use crate::action::{Class, RuleSet};
    use crate::error::Fault;

    #[test]
    fn every_method() {
        let rules = set(RuleSet::Webdav);
        for (method, expected) in [
            ("GET", "read safe"),
            ("HEAD", "read safe"),
            ("OPTIONS", "read safe"),
            ("PROPFIND", "read safe"),
            ("REPORT", "read safe"),
            ("SEARCH", "read safe"),
            ("PUT", "change idempotent"),
            ("COPY", "change idempotent"),
            ("PROPPATCH", "change idempotent"),
            ("DELETE", "change idempotent 404 410"),
            ("MKCOL", "change idempotent 405"),
            ("MOVE", "change idempotent 404"),
            ("POST", "change once"),
            ("PATCH", "change once"),
            ("LOCK", "lock_refused"),
            ("UNLOCK", "lock_refused"),
            // Just beside them.
            ("ACL", "change once"),
            ("PROPFINDS", "change once"),
            ("propfind", "change once"),
            ("REPORTS", "change once"),
            ("MKCALENDAR", "change once"),
            ("Lock", "change once"),
        ] {
            for target in ["/", "/a/../b", "*", "//%zz"] {
                assert_eq!(outcome(&rules, &asked(method, target, None, None)), expected, "{method} {target}");
            }
        }
    }

    #[test]
    fn a_lock_is_refused_with_words_of_its_own() {
        let rules = set(RuleSet::Webdav);
        let decision = decided(&rules, &asked("LOCK", "/x", None, None)).expect("one reading");
        assert_eq!((decision.class, decision.rule.refusal()), (Class::Refuse, Fault::LockRefused));
        assert_eq!(Fault::LockRefused.status(), 501);
    }
}
