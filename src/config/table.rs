//! A TOML table being read: every key is asked for once, and what nobody asked for is refused.
//!
//! Not serde: serde stops at the first wrong type or unknown key, and an operator wants all of them at once, each with
//! its own advice. A section's reader asks for its keys by name and type ([`Table::or`], [`Table::required`], …) and
//! ends with [`Table::finish`], which reports the keys it did not ask for.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Problems, Wrong};
use super::values::{Judged, did_you_mean, kind};

/// A table and the keys that its reader knows.
pub(super) struct Table<'t> {
    /// How the file would write it: `[admin]`, `[[listen]]`.
    title: String,
    map: &'t DeTable<'t>,
    span: Range<usize>,
    /// Keys that may stand here, once each.
    known: Vec<&'static str>,
    /// Keys that were refused with words of their own.
    refused: Vec<&'static str>,
}

impl<'t> Table<'t> {
    pub(super) fn new(title: impl Into<String>, map: &'t DeTable<'t>, span: Range<usize>) -> Self {
        Self { title: title.into(), map, span, known: Vec::new(), refused: Vec::new() }
    }

    /// As the file would write it.
    pub(super) fn title(&self) -> &str {
        &self.title
    }

    /// Where it begins: its header, or all of an inline table.
    pub(super) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// All of it as lines of TOML, in the order of the file, as the file means it.
    pub(super) fn written(&self) -> String {
        let mut keys: Vec<_> = self.map.iter().collect();
        keys.sort_by_key(|(key, _)| key.span().start);
        keys.into_iter()
            .map(|(key, value)| format!("{} = {}\n", key_written(key.get_ref()), written(value.get_ref())))
            .collect()
    }

    /// The value of `key`, which is thereby known.
    pub(super) fn find(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'t>>> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.map.get(key)
    }

    /// Is `key` missing, or an empty table or array?
    pub(super) fn is_open(&self, key: &str) -> bool {
        self.map.get(key).is_none_or(|value| match value.get_ref() {
            DeValue::Array(array) => array.is_empty(),
            DeValue::Table(map) => map.is_empty(),
            _ => false,
        })
    }

    /// The value of `key`; `None` if it is missing, or wrong (and then reported).
    pub(super) fn optional<T>(
        &mut self,
        problems: &mut Problems,
        key: &'static str,
        judge: impl FnOnce(&'t DeValue<'t>) -> Judged<T>,
    ) -> Option<Spanned<T>> {
        let value = self.find(key)?;
        match judge(value.get_ref()) {
            Ok(judged) => Some(Spanned::new(value.span(), judged)),
            Err(wrong) => {
                problems.push(value.span(), wrong);
                None
            }
        }
    }

    /// The value of `key`, whose absence is a problem; `advice` shows how to write it.
    pub(super) fn required<T>(
        &mut self,
        problems: &mut Problems,
        key: &'static str,
        advice: &str,
        judge: impl FnOnce(&'t DeValue<'t>) -> Judged<T>,
    ) -> Option<Spanned<T>> {
        if !self.map.contains_key(key) {
            problems.push(self.span(), Wrong::new(format!("{} has no `{key}`", self.title), advice));
        }
        self.optional(problems, key, judge)
    }

    /// The value of `key`, or `default` if it is missing or wrong.
    pub(super) fn or<T>(
        &mut self,
        problems: &mut Problems,
        key: &'static str,
        default: T,
        judge: impl FnOnce(&'t DeValue<'t>) -> Judged<T>,
    ) -> T {
        self.optional(problems, key, judge).map_or(default, Spanned::into_inner)
    }

    /// The table under `key`.
    pub(super) fn table(
        &mut self,
        problems: &mut Problems,
        key: &'static str,
        title: impl Into<String>,
    ) -> Option<Self> {
        let value = self.find(key)?;
        let title = title.into();
        match value.get_ref() {
            DeValue::Table(map) => Some(Self::new(title, map, value.span())),
            other => {
                problems.push(value.span(), not_a_table(key, other, &title));
                None
            }
        }
    }

    /// The tables of the array under `key`; empty if there is none.
    pub(super) fn tables(&mut self, problems: &mut Problems, key: &'static str, title: &str) -> Vec<Self> {
        let Some(value) = self.find(key) else { return Vec::new() };
        let DeValue::Array(array) = value.get_ref() else {
            problems.push(value.span(), not_a_table(key, value.get_ref(), title));
            return Vec::new();
        };
        let mut tables = Vec::new();
        for item in array.iter() {
            match item.get_ref() {
                DeValue::Table(map) => tables.push(Self::new(title, map, item.span())),
                other => problems.push(item.span(), not_a_table(key, other, title)),
            }
        }
        tables
    }

    /// Every key with its table, in the order of the file, for a table whose keys are names.
    pub(super) fn named(self, problems: &mut Problems) -> Vec<(Spanned<&'t str>, Self)> {
        let prefix = self.title.trim_end_matches(']').to_owned();
        let mut tables = Vec::new();
        for (key, value) in self.map {
            let name: &'t str = key.get_ref();
            let title = format!("{prefix}.{name}]");
            match value.get_ref() {
                DeValue::Table(map) => {
                    tables.push((Spanned::new(key.span(), name), Self::new(title, map, value.span())));
                }
                other => problems.push(value.span(), not_a_table(name, other, &title)),
            }
        }
        tables.sort_by_key(|(name, _)| name.span().start);
        tables
    }

    /// Refuses a key that a later version will have.
    pub(super) fn not_yet(&mut self, problems: &mut Problems, key: &'static str, advice: &str) {
        self.refused.push(key);
        if let Some((key, _)) = self.map.get_key_value(key) {
            let message = format!("`{}` is not in this version", key.get_ref());
            problems.push(key.span(), Wrong::new(message, advice));
        }
    }

    /// Refuses a key that does not go with another of the table.
    pub(super) fn misfit(&mut self, problems: &mut Problems, key: &'static str, message: &str, advice: &str) {
        self.refused.push(key);
        if let Some((key, _)) = self.map.get_key_value(key) {
            problems.push(key.span(), Wrong::new(message, advice));
        }
    }

    /// Reports the keys that were not asked for.
    pub(super) fn finish(self, problems: &mut Problems) {
        let heard = |key: &str| self.known.contains(&key) || self.refused.contains(&key);
        for key in self.map.keys().filter(|key| !heard(key.get_ref())) {
            let mut help = did_you_mean(key.get_ref(), &self.known);
            if help.is_empty() {
                help = format!("remove it; {} has: {}", self.title, self.known.join(", "));
            }
            let message = format!("{} has no key `{}`", self.title, key.get_ref().escape_debug());
            problems.push(key.span(), Wrong::new(message, help));
        }
    }
}

fn not_a_table(key: &str, found: &DeValue<'_>, title: &str) -> Wrong {
    let message = format!("`{}` is {} where a table belongs", key.escape_debug(), kind(found));
    Wrong::new(message, format!("write `{title}` on a line of its own, and its keys below"))
}

/// A string as TOML writes it.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// A key as TOML writes it: bare where it may be.
pub(super) fn key_written(key: &str) -> String {
    let bare = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'_' | b'-');
    if !key.is_empty() && key.bytes().all(bare) { key.to_owned() } else { quoted(key) }
}

fn written(value: &DeValue<'_>) -> String {
    let list = |items: Vec<String>| items.join(", ");
    match value {
        DeValue::String(text) => quoted(text),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| number.as_str().to_owned(), |number| number.to_string()),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(date) => date.to_string(),
        DeValue::Array(array) => format!("[{}]", list(array.iter().map(|item| written(item.get_ref())).collect())),
        DeValue::Table(map) => {
            let mut keys: Vec<_> = map.iter().collect();
            keys.sort_by_key(|(key, _)| key.span().start);
            let pair = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
                let key: &std::borrow::Cow<'_, str> = key.get_ref();
                format!("{} = {}", key_written(key), written(value.get_ref()))
            };
            format!("{{ {} }}", list(keys.into_iter().map(pair).collect()))
        }
    }
}
