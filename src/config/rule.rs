//! `[[group.NAME.rule]]`: a group's own rules, tried in order before the built-in set.

use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use super::error::{Problems, Wrong};
use super::table::Table;
use super::values::{Judged, boolean, integer, list, plain, text, word};
use crate::action::{Class, Dialect, Inject, OnUnknown, Rule, RuleError, UnknownOutcome, Validators, digits};

const OUTCOMES_LATER: &[(&str, &str)] = &[("conditional", ONCE), ("key", ONCE), ("probe", ONCE), ("cooperative", ONCE)];
const ACTION_HELP: &str = "write `action = \"NAME\"`, with `*` for any letters";
const HTTP_HELP: &str = "write `method = [\"POST\"]`, `path = \"/items/*\"`, or both";
const ONCE: &str = "write \"once\" until then: a child in doubt is not sent the change again";

/// A class.
pub(super) fn class(value: &DeValue<'_>) -> Judged<Class> {
    word("classes", Class::ALL, Class::as_str, &[])(value)
}

/// The rules of a group, in the order of the file.
pub(super) fn rules(tables: Vec<Table<'_>>, dialect: Dialect, problems: &mut Problems) -> Vec<Rule> {
    tables.into_iter().filter_map(|table| rule(table, dialect, problems)).collect()
}

fn rule(mut table: Table<'_>, dialect: Dialect, problems: &mut Problems) -> Option<Rule> {
    let advice = "add `class = \"change\"` (or read, live_change, refuse)";
    let class = table.required(problems, "class", advice, class);
    let class = class.map(Spanned::into_inner);
    let bare = match dialect {
        Dialect::Aci => aci(&mut table, class, problems),
        Dialect::Http => http(&mut table, class, problems),
    };

    // What is said of an outcome fits changes only; what may be retried, reads only.
    if class.is_some_and(|class| class != Class::Change) {
        for key in ["unknown_outcome", "on_unknown", "applied"] {
            table.misfit(problems, key, "only a change that may wait is sent again", "remove it");
        }
        table.misfit(problems, "validators", "only a change is refused for a condition", "remove it");
    }
    if class.is_some_and(|class| class != Class::Read) {
        table.misfit(problems, "safe", "only a read may be retried on another child", "remove it");
    }
    let outcomes = word("outcomes", UnknownOutcome::ALL, UnknownOutcome::as_str, OUTCOMES_LATER);
    let outcome = table.optional(problems, "unknown_outcome", outcomes);
    let outcome = outcome.map(Spanned::into_inner);
    let words = word("ends of a doubt", OnUnknown::ALL, OnUnknown::as_str, &[]);
    let on_unknown = table.optional(problems, "on_unknown", words);
    if let Some(found) = &on_unknown
        && class == Some(Class::Change)
        && outcome == Some(UnknownOutcome::Idempotent)
    {
        let message = "`on_unknown` is about a change that may not be sent again, and this one may";
        problems.push(found.span(), Wrong::new(message, "remove it"));
    }
    let applied = table.optional(problems, "applied", list(integer(100..=599)));
    if let Some(applied) = &applied
        && class == Some(Class::Change)
        && outcome != Some(UnknownOutcome::Idempotent)
    {
        let message = "`applied` is about a change that is sent again, and this one is not";
        problems.push(applied.span(), Wrong::new(message, "add `unknown_outcome = \"idempotent\"`, or remove it"));
    }
    let validators = word("values of `validators`", Validators::ALL, Validators::as_str, &[]);
    let validators = table.optional(problems, "validators", validators).map(Spanned::into_inner);
    let inject = match (dialect, class) {
        (Dialect::Aci, None | Some(Class::Change)) => inject(&mut table, problems),
        _ => {
            let message = "only a change of the dialect \"aci\" gets a parameter that it lacks";
            table.misfit(problems, "inject", message, "remove it");
            None
        }
    };
    let safe = table.optional(problems, "safe", boolean).map(Spanned::into_inner);
    table.finish(problems);

    let mut rule = bare?;
    if let Some(outcome) = outcome {
        rule = rule.with_unknown_outcome(outcome);
    }
    if let Some(on_unknown) = on_unknown {
        rule = rule.with_on_unknown(on_unknown.into_inner());
    }
    if let Some(applied) = applied {
        let statuses: Vec<u16> = applied.into_inner().into_iter().map(|status| status as u16).collect();
        rule = rule.with_applied(&statuses);
    }
    if let Some(inject) = inject {
        let span = inject.span();
        let help = "write the parameter's name, as in `parameter = \"Category\"`";
        rule = judged(rule.with_inject(inject.into_inner()), span, help, problems)?;
    }
    if let Some(validators) = validators {
        rule = rule.with_validators(validators);
    }
    if let Some(safe) = safe {
        rule = rule.with_safe(safe);
    }
    Some(rule)
}

/// `action`, `parameters`.
fn aci(table: &mut Table<'_>, class: Option<Class>, problems: &mut Problems) -> Option<Rule> {
    for key in ["method", "path"] {
        let message = format!("`{key}` is of the dialect \"http\", and this group speaks \"aci\"");
        table.misfit(problems, key, &message, ACTION_HELP);
    }
    let action = table.required(problems, "action", ACTION_HELP, plain);
    let parameters = table.optional(problems, "parameters", list(plain));
    let action = action?;
    let mut rule = judged(Rule::aci(action.get_ref(), class?), action.span(), ACTION_HELP, problems)?;
    if let Some(parameters) = parameters {
        let span = parameters.span();
        for parameter in parameters.into_inner() {
            let help = "write the names of parameters: the rule holds where one of them is given";
            rule = judged(rule.when_parameter(parameter), span.clone(), help, problems)?;
        }
    }
    Some(rule)
}

/// `inject`: a parameter and what makes its value.
fn inject(table: &mut Table<'_>, problems: &mut Problems) -> Option<Spanned<Inject>> {
    let mut table = table.table(problems, "inject", "inject")?;
    let span = table.span();
    let parameter = table.required(problems, "parameter", "add `parameter = \"Category\"`", plain);
    let digits = table.required(problems, "value", "add `value = \"digits:18\"`", |value| {
        let found = text(value)?;
        let wrong =
            || Wrong::new(format!("{found:?} makes no value"), "write \"digits:1\" to \"digits:18\": random digits");
        digits(found).ok_or_else(wrong)
    });
    table.finish(problems);
    let inject = Inject { parameter: (*parameter?.get_ref()).into(), digits: digits?.into_inner() };
    Some(Spanned::new(span, inject))
}

/// `method`, `path`; at least one of them.
fn http(table: &mut Table<'_>, class: Option<Class>, problems: &mut Problems) -> Option<Rule> {
    for key in ["action", "parameters"] {
        let message = format!("`{key}` is of the dialect \"aci\", and this group speaks \"http\"");
        table.misfit(problems, key, &message, HTTP_HELP);
    }
    let method = table.optional(problems, "method", methods);
    let path = table.optional(problems, "path", plain);
    if table.find("method").is_none() && table.find("path").is_none() {
        problems.push(table.span(), Wrong::new("this rule would hold for every request", HTTP_HELP));
        return None;
    }
    let span = path.as_ref().map(Spanned::span).or_else(|| method.as_ref().map(Spanned::span))?;
    let methods = method.map(Spanned::into_inner).unwrap_or_default();
    let path = path.map_or("*", Spanned::into_inner);
    judged(Rule::http(&methods, path, class?), span, HTTP_HELP, problems)
}

/// One method or a list of them. Methods are case-sensitive (RFC 9110 9.1), and none that anyone uses has small
/// letters: `"post"` would never match.
fn methods<'v>(value: &'v DeValue<'v>) -> Judged<Vec<&'v str>> {
    let one = |value: &'v DeValue<'v>| {
        let found = text(value)?;
        let fits = !found.is_empty() && found.bytes().all(|octet| octet.is_ascii_uppercase() || octet == b'-');
        if fits || found == "*" {
            return Ok(found);
        }
        let help = format!("write it in capitals: {:?}", found.to_ascii_uppercase());
        Err(Wrong::new(format!("{found:?} is not a method"), help))
    };
    if value.is_array() { list(one)(value) } else { Ok(vec![one(value)?]) }
}

/// Reports what the rule itself says is wrong with it.
fn judged(rule: Result<Rule, RuleError>, span: Range<usize>, help: &str, problems: &mut Problems) -> Option<Rule> {
    rule.map_err(|error| problems.push(span, Wrong::new(error.to_string(), help))).ok()
}
