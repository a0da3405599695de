//! What a request is to the group: its action, and the class of that action. Bytes in, decision out.
//!
//! Not here: what becomes of a read or a change (`route`, `mirror`), and the octets that are sent on. Nothing is
//! decoded, normalised or put in order for the child; it gets what came. Relies on `http` for a head and a body whose
//! framing is already decided.
//!
//! Two dialects. In `aci` a parameter names the action, and it may stand in the target, in a form, in a
//! part, or on a line of the body. In `http` the method and the path are the action.
//!
//! **One reading or none.** A child decides for itself what a request says. Where two servers could read it
//! differently and the readings differ in what they do, we refuse it ([`ActionAmbiguous`](crate::error::Fault::ActionAmbiguous)): a guess would let
//! a change through as a read, which changes one child only. In detail, for `aci`:
//!
//! - Any second `action` or `a` is refused, also with an equal value: first wins or last wins is the child's affair.
//! - Names and the action's value are percent-decoded once (`+` is a blank) and compared without regard to case.
//!   Controls, invalid encoding, octets that are not UTF-8, letters that fold to ASCII ones, and a second layer of
//!   encoding around `action` are refused there. Other values are not looked at.
//! - Blanks or a path around the name, `;` before or behind the pair, a dot segment in front: refused.
//! - A body is read as a form unless its type says multipart or something that is no form. Of the latter a read may
//!   not hide an action; behind a change it is opaque.
//!
//! **One child or none.** What asks about an asynchronous action by its token is for the child that issued it
//! ([`Decision::token`]); what would change a queue is for nobody else, and goes out once.
//!
//! **The same everywhere or nowhere.** A change is refused where the children would do different things with the same
//! octets: where it depends on an entity tag or a date that each server makes for itself
//! ([`ConditionalChange`](crate::error::Fault::ConditionalChange)), unless its rule says that they are the same; where it
//! takes a lock; and, in the set `influxdb`, where a server's clock would end up in the data.
//!
//! Absent on purpose: the parameter `_method` of a form (servers that know it act on it under POST, which is a change
//! already, unless a rule of the operator says otherwise).

use std::fmt;
use std::sync::Arc;

pub use self::explain::{HOW_WRITTEN, Written, explain};
pub use self::fields::{Parameters, Repeated, numeric_parameter};
pub(crate) use self::inject::digits;
pub use self::inject::{Inject, Injection, Into};
pub use self::name::ActionName;
pub use self::rules::{Rule, RuleError, Rules};
pub use self::sets::RuleSet;
pub use self::shown::masked;
pub use self::token::Token;

mod aci;
mod explain;
mod fields;
mod form;
mod http;
mod influxql;
mod inject;
mod multipart;
mod name;
mod parameters;
mod params;
mod pattern;
mod rules;
mod sets;
mod shown;
mod token;

/// An enum whose variants are words of the configuration.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant,)+ }

        impl $name {
            /// Every variant, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word of the configuration.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::action::NotAWord;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err($crate::action::NotAWord(&[$($word),+])),
                }
            }
        }
    };
}
pub(crate) use words;

/// A word of the configuration that is none of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAWord(pub &'static [&'static str]);

impl fmt::Display for NotAWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected one of \"{}\"", self.0.join("\", \""))
    }
}

impl std::error::Error for NotAWord {}

words! {
    /// What an action does to the group.
    Class {
        /// One child answers it.
        Read = "read",
        /// Every child gets it, in the group's one order.
        Change = "change",
        /// A change that every child must take now; refused while one is away.
        LiveChange = "live_change",
        /// Answered with an error, mostly 403; sent to nobody.
        Refuse = "refuse",
    }
}

words! {
    /// How a group's requests name their action.
    Dialect {
        /// A parameter `action` or `a`.
        Aci = "aci",
        /// Method and path.
        Http = "http",
    }
}

words! {
    /// What may be done when a change was sent and no answer came.
    UnknownOutcome {
        /// Send it again: twice is once.
        Idempotent = "idempotent",
        /// Send it again: it carries a condition that fails when it was applied.
        Conditional = "conditional",
        /// Send it again with the same idempotency key.
        Key = "key",
        /// Ask the child whether it was applied.
        Probe = "probe",
        /// The child keeps the last sequence with its data.
        Cooperative = "cooperative",
        /// Nothing is known: not sent again.
        Once = "once",
    }
}

words! {
    /// What ends the doubt about a change that may not be sent again, and that no child has answered.
    #[derive(Default)]
    OnUnknown {
        /// The operator does; until then no change is taken.
        #[default]
        Hold = "hold",
        /// It is sent again, to all.
        Resend = "resend",
        /// It counts as carried out, everywhere.
        Assume = "assume",
    }
}
words! {
    /// What is known of the entity tags and dates of a thing on different children.
    Validators {
        /// Each child makes its own: a change that depends on one is refused.
        Differ = "differ",
        /// All children have the same ones.
        Same = "same",
    }
}

/// What must be true for a request to be carried out, as its fields say (RFC 9110 13, RFC 4918 10.4 and 10.6).
///
/// `If-Modified-Since` is none: it means nothing on a change (RFC 9110 13.1.3). Nor is `If-Range`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precondition {
    /// Nothing.
    #[default]
    None,
    /// The thing must exist, or must not: the same on all children. `If-Match: *`, `If-None-Match: *`, `Overwrite: F`.
    Existence,
    /// The thing must have, or not have, a certain entity tag, date or lock, which a server makes.
    Validator,
}

/// A request as far as its class depends on it. Borrowed; nothing is decoded yet.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The method's octets.
    pub method: &'a [u8],
    /// Path and query, octets as they came: an absolute-form target without scheme and authority.
    pub target: &'a [u8],
    /// The method that a field asks the child to use instead, as several frameworks do. Empty: two fields, two methods.
    pub method_override: Option<&'a [u8]>,
    /// `Content-Type`.
    pub content_type: Option<&'a [u8]>,
    /// `Content-Encoding`.
    pub content_encoding: Option<&'a [u8]>,
    /// One of the two fields above came twice.
    pub repeated_type: bool,
    /// What must be true of the thing first.
    pub condition: Precondition,
    /// The head's framing says that a body follows.
    pub has_body: bool,
    /// The whole body, framing taken off, where it has been read.
    pub body: Option<&'a [u8]>,
}

/// What [`Rules::classify`] can say.
#[derive(Clone, Copy, Debug)]
pub enum Verdict<'r> {
    /// This is it.
    Decided(Decision<'r>),
    /// The action, or a second one, may stand in the body: call again with all of it.
    NeedBody,
}

/// A class, and everything that explains it.
#[derive(Clone, Copy, Debug)]
pub struct Decision<'r> {
    /// What to do with the request. `Refuse` is told to the client by [`Rule::refusal`].
    pub class: Class,
    /// The rule that matched; for [`Origin::Unknown`] the one that stands for the setting.
    pub rule: &'r Rule,
    /// Whose rule it is.
    pub origin: Origin,
    /// What in the request led to it.
    pub reason: Reason,
    /// The action in lower case (`aci`), or the method (`http`). Chosen by the client: no label for metrics, use
    /// [`Rule::name`] there.
    pub name: ActionName,
    /// The request has a condition: sent again, it is refused because it was carried out.
    pub conditional: bool,
    /// What the request lacks, by the rule.
    pub injection: Option<Injection<'r>>,
}

/// Where a rule comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The operator's rule with this number, counted from 1 in the order of the file.
    User(usize),
    /// A built-in set.
    Set(RuleSet),
    /// No rule matched: the setting `unknown`.
    Unknown,
}

/// What in a request led to the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// `aci`: the action was named here.
    Action(Place),
    /// `aci`: neither target nor body names an action.
    NoAction,
    /// `aci`: the action is a read, but the method is none that reads.
    Method,
    /// `http`: method and path.
    MethodAndPath,
}

/// Where a request names its action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the path or the query.
    Target,
    /// In a form in the body.
    Form,
    /// In a part of a multipart body.
    Part,
}

// === impl Asked ===

impl<'a> Asked<'a> {
    /// A request with this method, path and query, and these fields (names in any case), its body not read yet.
    pub fn of(
        method: &'a [u8],
        target: &'a [u8],
        has_body: bool,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Self {
        let mut asked = Self::bare(method, target);
        asked.has_body = has_body;
        for (name, value) in fields {
            asked.note_field(name, value);
        }
        asked
    }

    /// A request without fields and body.
    #[must_use]
    pub const fn bare(method: &'a [u8], target: &'a [u8]) -> Self {
        Self {
            method,
            target,
            method_override: None,
            content_type: None,
            content_encoding: None,
            repeated_type: false,
            condition: Precondition::None,
            has_body: false,
            body: None,
        }
    }

    /// The same request with its whole body.
    #[must_use]
    pub const fn with_body(mut self, body: &'a [u8]) -> Self {
        self.has_body = true;
        self.body = Some(body);
        self
    }

    /// The whole body if it is here; empty where there is none.
    fn whole_body(&self) -> Option<&'a [u8]> {
        self.body.or(if self.has_body { None } else { Some(b"") })
    }

    fn note_field(&mut self, name: &'a [u8], value: &'a [u8]) {
        // Lengths first: this runs for every field of every request.
        match name.len() {
            2 if name.eq_ignore_ascii_case(b"if") => self.condition = Precondition::Validator,
            8 if name.eq_ignore_ascii_case(b"if-match") => self.note_tags(value),
            9 if name.eq_ignore_ascii_case(b"overwrite") && value.trim_ascii().eq_ignore_ascii_case(b"f") => {
                self.condition = self.condition.max(Precondition::Existence);
            }
            13 if name.eq_ignore_ascii_case(b"if-none-match") => self.note_tags(value),
            19 if name.eq_ignore_ascii_case(b"if-unmodified-since") => self.condition = Precondition::Validator,
            // RFC 6638 3.2.10: a tag like any other.
            21 if name.eq_ignore_ascii_case(b"if-schedule-tag-match") => self.condition = Precondition::Validator,
            12 if name.eq_ignore_ascii_case(b"content-type") => {
                self.repeated_type |= self.content_type.replace(value).is_some();
            }
            16 if name.eq_ignore_ascii_case(b"content-encoding") => {
                self.repeated_type |= self.content_encoding.replace(value).is_some();
            }
            13 | 17 | 22
                if [&b"x-http-method"[..], b"x-method-override", b"x-http-method-override"]
                    .iter()
                    .any(|known| name.eq_ignore_ascii_case(known)) =>
            {
                let differs = self.method_override.is_some_and(|earlier| earlier != value);
                self.method_override = Some(if differs { b"" } else { value });
            }
            _ => {}
        }
    }

    /// A list of entity tags, or the asterisk that stands for any.
    fn note_tags(&mut self, value: &[u8]) {
        let told = if value.trim_ascii() == b"*" { Precondition::Existence } else { Precondition::Validator };
        self.condition = self.condition.max(told);
    }
}

// === impl Decision, Origin, Reason, Place ===

impl Decision<'_> {
    /// Statuses that mean "applied before" when the change was sent again: the rule's, and 412 if it has a condition.
    #[must_use]
    pub fn applied(&self) -> Arc<[u16]> {
        const PRECONDITION_FAILED: u16 = 412;
        match self.conditional && !self.rule.applied().contains(&PRECONDITION_FAILED) {
            true => self.rule.applied().iter().copied().chain([PRECONDITION_FAILED]).collect(),
            false => self.rule.applied().clone(),
        }
    }
}

impl fmt::Display for Decision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, {}; {}", self.class, self.origin, self.rule, self.reason)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(number) => write!(f, "rule {number} of the configuration"),
            Self::Set(set) => write!(f, "built-in set {set}"),
            Self::Unknown => f.write_str("the setting `unknown`"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Action(place) => write!(f, "the action is named in {place}"),
            Self::NoAction => f.write_str("the request names no action"),
            Self::Method => f.write_str("the action reads, but not with this method"),
            Self::MethodAndPath => f.write_str("by method and path"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Target => "the target",
            Self::Form => "the form in the body",
            Self::Part => "a part of the body",
        })
    }
}

#[cfg(test)]
mod tests;
