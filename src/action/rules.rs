//! Rules as data, and finding the one that decides.
//!
//! The operator's rules come first, in the order of the file, then a built-in set, then the setting `unknown`; the first
//! match wins. What a request says is found out by `aci.rs` and `http.rs`; here are only names, methods and paths.

use std::fmt;
use std::sync::Arc;

use super::form::decode_octet;
use super::name::ActionName;
use super::params::is_token;
use super::pattern::Pattern;
use super::{
    Asked, Class, Dialect, Inject, OnUnknown, Origin, Precondition, RuleSet, UnknownOutcome, Validators, Verdict, aci,
    http,
};
use crate::error::Fault;
use crate::limits::{RULE_CONDITIONS_MAX, RULES_MAX};

/// One rule: what it matches, and what a match means.
///
/// ```
/// use antiphon::action::{Class, Rule, UnknownOutcome};
/// let rule = Rule::http(&["POST"], "/items/*", Class::Change)?
///     .with_unknown_outcome(UnknownOutcome::Idempotent)
///     .with_applied(&[409]);
/// assert_eq!(rule.name(), "POST /items/*");
/// # Ok::<(), antiphon::action::RuleError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rule {
    name: Box<str>,
    matcher: Matcher,
    class: Class,
    safe: bool,
    unknown_outcome: UnknownOutcome,
    on_unknown: OnUnknown,
    applied: Arc<[u16]>,
    validators: Validators,
    refusal: Fault,
    /// With the bit of [`Rules::conditions`] that says that a request has the parameter.
    inject: Option<(Inject, u64)>,
    /// A read that only the child whose token it carries may carry out, and once.
    issuer_only: bool,
}

/// What a look at the whole request tells of a rule's condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// It holds.
    Yes,
    /// It does not, or that cannot be told with certainty.
    No,
    /// The body must be there first. Never said of a request whose body is there.
    NeedBody,
}

/// A condition of a built-in rule that only code can judge. A fault refuses the request.
pub(super) type Judge = for<'r, 'a> fn(&'r Asked<'a>) -> Result<Told, Fault>;

#[derive(Clone, Debug)]
enum Matcher {
    /// Any of `conditions` must hold; none given is no condition. `mask` has their bits in [`Rules::conditions`].
    Aci { action: Pattern, conditions: Vec<Condition>, mask: u64 },
    /// No methods: any. The judge is asked last.
    Http { methods: Box<[Box<str>]>, path: Pattern, judge: Option<Judge> },
    /// The setting `unknown`: never asked, taken when nothing else matches.
    Nothing,
}

/// Something about a parameter of an ACI request, wherever it stands. Names and values in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// It is there, whatever its value.
    Present(Box<str>),
    /// It is there at least once with a value that is none of these, or that cannot be read with certainty.
    OtherThan(Box<str>, Box<[Box<str>]>),
}

/// The rules of one group. Immutable; shared by all workers.
#[derive(Debug)]
pub struct Rules {
    dialect: Dialect,
    /// The operator's, then the set's.
    rules: Vec<Rule>,
    /// How many of `rules` are the operator's.
    user: usize,
    set: RuleSet,
    unknown: Rule,
    /// Every condition of `rules` once; a request's met ones are bits, in this order.
    conditions: Vec<Condition>,
    /// `http`: some rule asks for the path.
    paths_matter: bool,
}

/// A rule, or a list of them, that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// Empty or too long.
    #[error("a pattern has 1 to {} octets; `*` alone matches everything", crate::limits::RULE_PATTERN_BYTES_MAX)]
    Pattern,
    /// Not ASCII, or with a character that no action's name has.
    #[error("an action's name has visible ASCII characters and no separators; `*` stands for any of them")]
    Action,
    /// Not a token of RFC 9110 5.6.2.
    #[error("`{0}` is no HTTP method; methods are upper case, as in \"POST\"")]
    Method(Box<str>),
    /// A path that no request has.
    #[error("a path begins with `/` or `*`, and has no query")]
    Path,
    /// The name of a parameter is empty or not ASCII.
    #[error("a parameter's name has visible ASCII characters")]
    Parameter,
    /// The rule has an action and the group speaks HTTP, or the other way around.
    #[error("rule {0} is of the other dialect: `action` belongs to \"aci\", `method` and `path` to \"http\"")]
    Dialect(usize),
    /// The set is made for the other dialect.
    #[error("the rule set \"{0}\" is made for the dialect \"{1}\"; set `dialect = \"{1}\"` or take another set")]
    Set(RuleSet, Dialect),
    /// Too many rules.
    #[error("a group has at most {RULES_MAX} rules, its built-in set included")]
    TooMany,
    /// Too many different parameters.
    #[error("the rules of a group ask for at most {RULE_CONDITIONS_MAX} different parameters")]
    TooManyParameters,
}

// === impl Rule ===

impl Rule {
    /// A rule for the actions whose name the pattern describes, in any case; `*` stands for any characters.
    ///
    /// A change is [`UnknownOutcome::Once`] and a read not safe to send again until said otherwise.
    ///
    /// # Errors
    /// [`RuleError::Pattern`] and [`RuleError::Action`].
    pub fn aci(action: &str, class: Class) -> Result<Self, RuleError> {
        let pattern = Pattern::new(&action.to_ascii_lowercase()).ok_or(RuleError::Pattern)?;
        // What the pattern names must be a name that a request can have.
        if action.contains('+') || ActionName::literal(action.as_bytes()).is_err() {
            return Err(RuleError::Action);
        }
        let matcher = Matcher::Aci { action: pattern, conditions: Vec::new(), mask: 0 };
        Ok(Self::new(action.into(), matcher, class))
    }

    /// A rule for these methods on the paths that the pattern describes. No methods, or `*` among them: any method.
    /// In the pattern `*` stands for any octets, `/` too; the query is not looked at. `/items/*` does not match
    /// `/items`.
    ///
    /// # Errors
    /// [`RuleError::Pattern`], [`RuleError::Method`], [`RuleError::Path`].
    pub fn http(methods: &[impl AsRef<str>], path: &str, class: Class) -> Result<Self, RuleError> {
        let pattern = Pattern::new(path).ok_or(RuleError::Pattern)?;
        if !path.starts_with(['/', '*']) || path.contains(['?', '#']) {
            return Err(RuleError::Path);
        }
        let mut list: Vec<Box<str>> = methods.iter().map(|method| method.as_ref().into()).collect();
        let mut name = list.join(", ");
        if list.is_empty() || list.iter().any(|method| &**method == "*") {
            list.clear();
            name = "*".into();
        }
        // Methods are told apart by case (RFC 9110 9.1): a lower-case one would match nothing that anybody sends.
        let is_method = |name: &str| is_token(name.as_bytes()) && !name.bytes().any(|octet| octet.is_ascii_lowercase());
        if let Some(wrong) = list.iter().find(|name| !is_method(name)) {
            return Err(RuleError::Method(wrong.clone()));
        }
        if path != "*" {
            name = format!("{name} {path}");
        }
        Ok(Self::new(name, Matcher::Http { methods: list.into(), path: pattern, judge: None }, class))
    }

    fn new(name: String, matcher: Matcher, class: Class) -> Self {
        let unknown_outcome = UnknownOutcome::Once;
        Self {
            name: name.into(),
            matcher,
            class,
            safe: false,
            unknown_outcome,
            on_unknown: OnUnknown::default(),
            applied: Arc::from([]),
            validators: Validators::Differ,
            refusal: Fault::ActionRefused,
            inject: None,
            issuer_only: false,
        }
    }

    /// The request may be sent again to another child when no answer came, whatever its method.
    #[must_use]
    pub const fn with_safe(mut self, safe: bool) -> Self {
        self.safe = safe;
        self
    }

    /// What may be done about a change whose outcome is unknown.
    #[must_use]
    pub const fn with_unknown_outcome(mut self, unknown_outcome: UnknownOutcome) -> Self {
        self.unknown_outcome = unknown_outcome;
        self
    }

    /// What ends a doubt that all children share.
    #[must_use]
    pub const fn with_on_unknown(mut self, on_unknown: OnUnknown) -> Self {
        self.on_unknown = on_unknown;
        self
    }

    /// Statuses that mean "applied before" when a change was sent again.
    #[must_use]
    pub fn with_applied(mut self, statuses: &[u16]) -> Self {
        self.applied = statuses.into();
        self
    }

    /// Whether a change may depend on entity tags and dates.
    #[must_use]
    pub const fn with_validators(mut self, validators: Validators) -> Self {
        self.validators = validators;
        self
    }

    /// Adds a parameter to requests that lack it.
    ///
    /// # Errors
    /// [`RuleError::Parameter`]; [`RuleError::Dialect`] on a rule of the dialect `http`.
    pub fn with_inject(mut self, inject: Inject) -> Result<Self, RuleError> {
        if !matches!(self.matcher, Matcher::Aci { .. }) {
            return Err(RuleError::Dialect(0));
        }
        // It is written as it is, so it must mean itself wherever it stands.
        let is_plain = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'_' | b'-' | b'.');
        if inject.parameter.is_empty() || !inject.parameter.bytes().all(is_plain) {
            return Err(RuleError::Parameter);
        }
        self.inject = Some((inject, 0));
        Ok(self)
    }

    /// What the client is told where the rule refuses.
    #[must_use]
    pub(super) const fn with_refusal(mut self, refusal: Fault) -> Self {
        self.refusal = refusal;
        self
    }

    /// Only the child that issued the request's token may carry it out ([`Decision::token`](super::Decision::token)), and
    /// nobody twice.
    #[must_use]
    pub(super) const fn for_issuer_only(mut self) -> Self {
        self.issuer_only = true;
        self
    }

    /// Only requests of which `judge` says so; `words` go behind the rule's name.
    ///
    /// # Errors
    /// [`RuleError::Dialect`] on a rule of the dialect `aci`.
    pub(super) fn when_told(mut self, words: &str, told_by: Judge) -> Result<Self, RuleError> {
        let Matcher::Http { judge, .. } = &mut self.matcher else { return Err(RuleError::Dialect(0)) };
        *judge = Some(told_by);
        self.name = format!("{} {words}", self.name).into();
        Ok(self)
    }

    /// Only requests that have this parameter, or another one given in the same way.
    ///
    /// # Errors
    /// [`RuleError::Parameter`]; [`RuleError::Dialect`] on a rule of the dialect `http`.
    pub fn when_parameter(self, name: &str) -> Result<Self, RuleError> {
        self.when(Condition::Present(parameter_name(name)?), name)
    }

    /// Only requests that have this parameter with a value that is none of these, in any case; a value that cannot be
    /// read with certainty is none of them.
    ///
    /// # Errors
    /// As [`Rule::when_parameter`].
    pub fn when_parameter_is_none_of(self, name: &str, values: &[&str]) -> Result<Self, RuleError> {
        let values = values.iter().map(|value| value.to_ascii_lowercase().into()).collect();
        self.when(Condition::OtherThan(parameter_name(name)?, values), name)
    }

    fn when(mut self, condition: Condition, name: &str) -> Result<Self, RuleError> {
        let Matcher::Aci { conditions, .. } = &mut self.matcher else { return Err(RuleError::Dialect(0)) };
        let word = if conditions.is_empty() { "with" } else { "or" };
        conditions.push(condition);
        self.name = format!("{} {word} {name}", self.name).into();
        Ok(self)
    }

    /// What it matches, as an operator writes it: for explanations and for labels of metrics.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The class of what it matches.
    #[must_use]
    pub const fn class(&self) -> Class {
        self.class
    }

    /// Whether a read may be sent again to another child whatever its method.
    #[must_use]
    pub const fn safe(&self) -> bool {
        self.safe
    }

    /// What may be done about a change whose outcome is unknown.
    #[must_use]
    pub const fn unknown_outcome(&self) -> UnknownOutcome {
        self.unknown_outcome
    }

    /// What ends a doubt that all children share.
    #[must_use]
    pub const fn on_unknown(&self) -> OnUnknown {
        self.on_unknown
    }

    /// Statuses that mean "applied before" when a change was sent again.
    #[must_use]
    pub const fn applied(&self) -> &Arc<[u16]> {
        &self.applied
    }

    /// Whether a change may depend on entity tags and dates.
    #[must_use]
    pub const fn validators(&self) -> Validators {
        self.validators
    }

    /// What the client is told where the rule refuses.
    #[must_use]
    pub const fn refusal(&self) -> Fault {
        self.refusal
    }

    /// Whether a read may be carried out by nobody but the child that issued its token, and by it only once.
    #[must_use]
    pub const fn issuer_only(&self) -> bool {
        self.issuer_only
    }

    /// What requests get that lack it, and the bit that says that one has it.
    pub(super) fn inject(&self) -> Option<(&Inject, u64)> {
        self.inject.as_ref().map(|(inject, mask)| (inject, *mask))
    }

    /// Whether it makes no difference which of the two decides.
    pub(super) fn does_the_same_as(&self, other: &Self) -> bool {
        self.class == other.class
            && self.safe == other.safe
            && self.unknown_outcome == other.unknown_outcome
            && self.on_unknown == other.on_unknown
            && self.applied == other.applied
            && self.validators == other.validators
            && self.refusal == other.refusal
            && self.issuer_only == other.issuer_only
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn parameter_name(name: &str) -> Result<Box<str>, RuleError> {
    match name.is_empty() || !name.bytes().all(|octet| octet.is_ascii_graphic()) {
        true => Err(RuleError::Parameter),
        false => Ok(name.to_ascii_lowercase().into()),
    }
}

// === impl Rules ===

impl Rules {
    /// The operator's rules, then the set's, then `unknown` for what none of them matches.
    ///
    /// # Errors
    /// If a rule or the set is of the other dialect, or there are too many.
    pub fn new(dialect: Dialect, set: RuleSet, user: Vec<Rule>, unknown: Class) -> Result<Self, RuleError> {
        if let Some(other) = set.dialect().filter(|of| *of != dialect) {
            return Err(RuleError::Set(set, other));
        }
        let count = user.len();
        let mut rules = user;
        rules.extend(set.rules());
        if rules.len() > RULES_MAX {
            return Err(RuleError::TooMany);
        }
        let mut all: Vec<Condition> = Vec::new();
        let mut bit_of = |condition: &Condition| {
            let bit = all.iter().position(|known| known == condition).unwrap_or_else(|| {
                all.push(condition.clone());
                all.len() - 1
            });
            if bit < RULE_CONDITIONS_MAX { Ok(1 << bit) } else { Err(RuleError::TooManyParameters) }
        };
        let mut paths_matter = false;
        for (index, rule) in rules.iter_mut().enumerate() {
            match (&mut rule.matcher, dialect) {
                (Matcher::Aci { conditions, mask, .. }, Dialect::Aci) => {
                    *mask = 0;
                    for condition in conditions {
                        *mask |= bit_of(condition)?;
                    }
                    if let Some((inject, mask)) = &mut rule.inject {
                        *mask = bit_of(&Condition::Present(parameter_name(&inject.parameter)?))?;
                    }
                }
                (Matcher::Http { path, .. }, Dialect::Http) => paths_matter |= !path.is_any(),
                _ => return Err(RuleError::Dialect(index + 1)),
            }
        }
        let unknown = Rule::new("unknown".into(), Matcher::Nothing, unknown);
        Ok(Self { dialect, rules, user: count, set, unknown, conditions: all, paths_matter })
    }

    /// Tells what a request is. Allocates nothing for a request whose names are not encoded. Work is linear in the
    /// request, times the number of rules in the worst case.
    ///
    /// # Errors
    /// [`Fault::ActionAmbiguous`], [`Fault::ActionEncrypted`], [`Fault::ActionMissing`], [`Fault::ConditionalChange`].
    /// A request that a rule refuses is no error here: it is decided, with [`Class::Refuse`].
    pub fn classify(&self, asked: &Asked<'_>) -> Result<Verdict<'_>, Fault> {
        let verdict = match self.dialect {
            Dialect::Aci => aci::classify(self, asked),
            Dialect::Http => http::classify(self, asked),
        }?;
        if let Verdict::Decided(decision) = &verdict
            && matches!(decision.class, Class::Change | Class::LiveChange)
            && asked.condition == Precondition::Validator
            && decision.rule.validators == Validators::Differ
        {
            return Err(Fault::ConditionalChange);
        }
        Ok(verdict)
    }

    /// How requests of the group name their action.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The rules in the order in which they are asked: the operator's first.
    #[must_use]
    pub fn list(&self) -> &[Rule] {
        &self.rules
    }

    /// The rule that stands for the setting `unknown`.
    #[must_use]
    pub const fn unknown(&self) -> &Rule {
        &self.unknown
    }

    pub(super) const fn paths_matter(&self) -> bool {
        self.paths_matter
    }

    pub(super) fn unknown_match(&self) -> (Origin, &Rule) {
        (Origin::Unknown, &self.unknown)
    }

    /// The rule for an action of a request that meets these conditions.
    pub(super) fn of_action(&self, name: &ActionName, met: u64) -> (Origin, &Rule) {
        let first = self.rules.iter().position(|rule| match &rule.matcher {
            Matcher::Aci { action, mask, .. } => (*mask == 0 || *mask & met != 0) && action.matches(name.as_bytes()),
            Matcher::Http { .. } | Matcher::Nothing => false,
        });
        first.map_or_else(|| self.unknown_match(), |index| self.at(index))
    }

    /// The rule for a method on a path, of a request that is like `asked` in all else. `None`: the body must be there.
    pub(super) fn of_path(
        &self,
        asked: &Asked<'_>,
        method: &[u8],
        path: &[u8],
    ) -> Result<Option<(Origin, &Rule)>, Fault> {
        for (index, rule) in self.rules.iter().enumerate() {
            let Matcher::Http { methods, path: pattern, judge } = &rule.matcher else { continue };
            let named = methods.is_empty() || methods.iter().any(|known| known.as_bytes() == method);
            if !named || !pattern.matches(path) {
                continue;
            }
            match judge.map_or(Ok(Told::Yes), |judge| judge(asked))? {
                Told::Yes => return Ok(Some(self.at(index))),
                Told::No => {}
                Told::NeedBody => return Ok(None),
            }
        }
        Ok(Some(self.unknown_match()))
    }

    fn at(&self, index: usize) -> (Origin, &Rule) {
        let origin = if index < self.user { Origin::User(index + 1) } else { Origin::Set(self.set) };
        (origin, &self.rules[index])
    }

    /// The conditions that a parameter meets, as bits. `value` is encoded as it came; `None`: there is none that could
    /// be read with certainty.
    pub(super) fn conditions_met(&self, name: &[u8], value: Option<&[u8]>) -> u64 {
        let mut met = 0;
        for (bit, condition) in self.conditions.iter().enumerate() {
            let holds = match condition {
                Condition::Present(known) => name.eq_ignore_ascii_case(known.as_bytes()),
                Condition::OtherThan(known, values) => {
                    name.eq_ignore_ascii_case(known.as_bytes())
                        && !value.is_some_and(|raw| values.iter().any(|known| decodes_to(raw, known.as_bytes())))
                }
            };
            met |= u64::from(holds) << bit;
        }
        met
    }
}

/// Whether an encoded text says `plain`, which is in lower case.
fn decodes_to(mut raw: &[u8], plain: &[u8]) -> bool {
    for expected in plain {
        match decode_octet(raw) {
            Some((octet, taken)) if octet.to_ascii_lowercase() == *expected => raw = &raw[taken..],
            _ => return false,
        }
    }
    raw.is_empty()
}
