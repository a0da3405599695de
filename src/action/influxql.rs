//! What a text of InfluxQL does, by a look at its words. Not a parser: it finds where statements, strings, quoted names,
//! comments and regular expressions begin and end, and which words stand outside of them.
//!
//! # Why a look is enough
//!
//! A server parses the whole text before it carries out any of it, so that a text which it cannot parse does nothing. Only
//! three kinds of statements read (SELECT without INTO, SHOW, EXPLAIN), and those which change begin with a word that is
//! reserved: as a name it must stand in quotes. So a text reads if each statement begins with one of the three and no
//! changing word stands anywhere outside of quotes. What remains is to be sure of what is inside: wherever a server
//! could end a string, a comment or a regular expression at another place than we do, the text is *unreadable*, and that
//! is a change.
//!
//! - Strings and quoted names: a backslash before `n`, `\`, `'` or `"`; no line end and no NUL in them.
//! - Comments: `--` to the end of the line, `/*` to `*/`, not nested.
//! - A slash begins a regular expression behind `=~`, `!~`, `(`, `,`, `.`, SELECT, FROM and BY; behind a name, a number, a
//!   string or a closing parenthesis it divides; anywhere else it is unreadable. So is a regular expression with a quote,
//!   a semicolon or two backslashes in it.
//! - A NUL (the end, to the server), other controls, and what is not ASCII outside of quotes: unreadable.

/// What a text does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing but read.
    Reads,
    /// Perhaps more.
    Changes,
    /// Changes, and depends on the server's clock: `now()`.
    ChangesByClock,
    /// Concerns something that one server alone has: a running query and its number.
    Local,
}

/// What one statement has shown so far.
#[derive(Default)]
struct Statement {
    begins_with: Option<Word>,
    changes: bool,
    asks_time: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    /// SELECT, SHOW, EXPLAIN.
    Reading,
    Kill,
    /// A continuous query is stored as it is written, `now()` too.
    Create,
    Other,
}

/// What stands before: it decides what a slash is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// Something that can be divided.
    Operand,
    /// A regular expression may follow.
    Leader,
    Else,
}

/// Somewhere a server could go on differently.
struct Unreadable;

/// What the whole text does; a text without statements counts as a change.
pub(super) fn effect(text: &[u8]) -> Effect {
    let mut whole = None;
    let mut at = 0;
    while at <= text.len() {
        let mut statement = Statement::default();
        let Ok(end) = statement.read(text, at) else { return Effect::Changes };
        at = end + 1;
        whole = match (whole, statement.effect()) {
            (one, None) => one,
            (None, other) => other,
            (Some(Effect::Local), _) | (_, Some(Effect::Local)) => Some(Effect::Local),
            (Some(Effect::ChangesByClock), _) | (_, Some(Effect::ChangesByClock)) => Some(Effect::ChangesByClock),
            (Some(Effect::Changes), _) | (_, Some(Effect::Changes)) => Some(Effect::Changes),
            (Some(Effect::Reads), Some(Effect::Reads)) => Some(Effect::Reads),
        };
    }
    whole.unwrap_or(Effect::Changes)
}

impl Statement {
    /// `None`: there is no word in it.
    fn effect(&self) -> Option<Effect> {
        Some(match self.begins_with? {
            Word::Kill => Effect::Local,
            Word::Reading if !self.changes => Effect::Reads,
            Word::Create => Effect::Changes,
            _ if self.asks_time => Effect::ChangesByClock,
            _ => Effect::Changes,
        })
    }

    /// Reads from `at` to the semicolon that ends the statement, or to the end of the text: returns where that is.
    fn read(&mut self, text: &[u8], mut at: usize) -> Result<usize, Unreadable> {
        let mut before = Before::Else;
        while let Some(&octet) = text.get(at) {
            let next = text.get(at + 1).copied();
            match octet {
                b';' => return Ok(at),
                b' ' | b'\t' | b'\n' => at += 1,
                b'\r' if next == Some(b'\n') => at += 1,
                b'-' if next == Some(b'-') => at = end_of_line(text, at)?,
                b'/' if next == Some(b'*') => at = end_of_comment(text, at)?,
                b'/' => match before {
                    Before::Operand => (at, before) = (at + 1, Before::Else),
                    Before::Leader => (at, before) = (end_of_regex(text, at)?, Before::Operand),
                    Before::Else => return Err(Unreadable),
                },
                b'\'' | b'"' => {
                    // No statement begins with one.
                    self.begins_with.get_or_insert(Word::Other);
                    (at, before) = (end_of_quoted(text, at)?, Before::Operand);
                }
                b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                    let end = end_of_run(text, at, |octet| octet.is_ascii_alphanumeric() || octet == b'_');
                    before = self.see_word(&text[at..end]);
                    at = end;
                }
                b'0'..=b'9' => {
                    // Letters behind a number are a word to us, be they a unit or not.
                    at = end_of_run(text, at, |octet| octet.is_ascii_digit());
                    before = Before::Operand;
                    self.begins_with.get_or_insert(Word::Other);
                }
                b'(' | b',' | b'.' => (at, before) = (at + 1, Before::Leader),
                b'~' => (at, before) = (at + 1, Before::Leader),
                b')' => (at, before) = (at + 1, Before::Operand),
                b'*' | b'+' | b'-' | b'%' | b'&' | b'|' | b'^' | b'=' | b'<' | b'>' | b'!' | b':' | b'$' => {
                    (at, before) = (at + 1, Before::Else);
                }
                _ => return Err(Unreadable),
            }
        }
        Ok(text.len())
    }

    fn see_word(&mut self, word: &[u8]) -> Before {
        let is_of = |list: &[&str]| list.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes()));
        if self.begins_with.is_none() {
            self.begins_with = Some(match () {
                () if is_of(READING) => Word::Reading,
                () if is_of(&["kill"]) => Word::Kill,
                () if is_of(&["create"]) => Word::Create,
                () => Word::Other,
            });
        }
        self.changes |= is_of(CHANGING);
        self.asks_time |= is_of(&["now"]);
        match () {
            () if is_of(REGEX_LEADERS) => Before::Leader,
            () if is_of(OTHER_KEYWORDS) || is_of(READING) || is_of(CHANGING) => Before::Else,
            () => Before::Operand,
        }
    }
}

fn end_of_run(text: &[u8], at: usize, belongs: impl Fn(u8) -> bool) -> usize {
    at + text[at..].iter().take_while(|octet| belongs(**octet)).count()
}

/// Of a comment that begins with two hyphens.
fn end_of_line(text: &[u8], at: usize) -> Result<usize, Unreadable> {
    let end = text[at..].iter().position(|octet| *octet == b'\n').map_or(text.len(), |line| at + line);
    let comment = &text[at..end];
    let comment = comment.strip_suffix(b"\r").unwrap_or(comment);
    // A carriage return ends the line for some.
    if comment.iter().any(|octet| matches!(octet, b'\r' | 0)) { Err(Unreadable) } else { Ok(end) }
}

fn end_of_comment(text: &[u8], at: usize) -> Result<usize, Unreadable> {
    let inner = &text[at + 2..];
    let end = inner.windows(2).position(|pair| pair == b"*/").ok_or(Unreadable)?;
    // Where comments nest, this one would go on.
    let doubtful = inner[..end].contains(&0) || inner[..end].windows(2).any(|pair| pair == b"/*");
    if doubtful { Err(Unreadable) } else { Ok(at + 2 + end + 2) }
}

fn end_of_quoted(text: &[u8], at: usize) -> Result<usize, Unreadable> {
    let quote = text[at];
    let mut at = at + 1;
    loop {
        match text.get(at) {
            Some(b'\\') if matches!(text.get(at + 1), Some(b'n' | b'\\' | b'\'' | b'"')) => at += 2,
            None | Some(b'\\' | b'\n' | b'\r' | 0) => return Err(Unreadable),
            Some(octet) if *octet == quote => return Ok(at + 1),
            Some(_) => at += 1,
        }
    }
}

fn end_of_regex(text: &[u8], at: usize) -> Result<usize, Unreadable> {
    let from = at;
    let mut at = at + 1;
    loop {
        match text.get(at) {
            Some(b'\\') if !matches!(text.get(at + 1), None | Some(b'\\' | b'\n' | b'\r' | 0)) => at += 2,
            None | Some(b'\\' | b'\n' | b'\r' | 0 | b'\'' | b'"' | b';') => return Err(Unreadable),
            Some(b'/') => break,
            Some(_) => at += 1,
        }
    }
    // Should it be none, this is what it must not hide.
    let hides_into = text[from..at].windows(4).any(|word| word.eq_ignore_ascii_case(b"into"));
    if hides_into || text[from..at].contains(&b';') { Err(Unreadable) } else { Ok(at + 1) }
}

const READING: &[&str] = &["select", "show", "explain"];

/// Reserved: none of them is a name without quotes.
const CHANGING: &[&str] =
    &["into", "create", "drop", "delete", "alter", "grant", "revoke", "kill", "set", "insert", "begin"];

/// A regular expression may follow.
const REGEX_LEADERS: &[&str] = &["select", "from", "by"];

/// Reserved words behind which a slash cannot be read.
const OTHER_KEYWORDS: &[&str] = &[
    "all",
    "analyze",
    "and",
    "any",
    "as",
    "asc",
    "cardinality",
    "desc",
    "distinct",
    "exact",
    "fill",
    "for",
    "group",
    "in",
    "key",
    "keys",
    "limit",
    "measurement",
    "measurements",
    "not",
    "offset",
    "on",
    "or",
    "order",
    "series",
    "slimit",
    "soffset",
    "tag",
    "tz",
    "values",
    "where",
    "with",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_that_read() {
        for text in [
            "SELECT * FROM cpu",
            "  select mean(\"value\") from \"db\".\"autogen\".\"cpu\" where time > now() - 1h group by time(1m), \"host\"",
            "SHOW DATABASES",
            "SHOW DATABASES;",
            ";;show measurements;; SHOW TAG KEYS FROM \"a;b\";",
            "SELECT 'drop database x; into' FROM \"INTO\"",
            "SELECT \"a\\\"; DROP DATABASE x; --\" FROM x",
            "SELECT a FROM x -- ; DROP DATABASE x",
            "SELECT a -- comment\r\n FROM x",
            "/* DROP DATABASE x; */ SELECT a /* into */ FROM x",
            "SELECT a / b, (c + 1) / 2, 'x' FROM x WHERE d / 2 > 1",
            "SELECT * FROM /^cpu\\/a|b$/ WHERE host =~ /^a.*$/ AND b !~ /x/ GROUP BY /tag/, *",
            "SELECT mean(/x/), /y/ FROM db../cpu/",
            "EXPLAIN SELECT a FROM x",
            "EXPLAIN ANALYZE SELECT a FROM x",
            "SHOW GRANTS FOR x; SHOW QUERIES",
            "SELECT a::field, $b FROM x WHERE t = $c",
            "SELECT into_ FROM dropped",
            "SELECT \"\u{e9}\" FROM x WHERE y = '\u{1f600}'",
            "SELECT (SELECT a FROM b) FROM x",
            "SELECT a FROM x WHERE time > 10m",
        ] {
            assert_eq!(effect(text.as_bytes()), Effect::Reads, "{text}");
        }
    }

    #[test]
    fn texts_that_change_or_cannot_be_read() {
        for text in [
            "",
            " ",
            ";",
            "-- nothing",
            "CREATE DATABASE x",
            "DROP SERIES FROM x",
            "SELECT a INTO b FROM x",
            "SELECT a iNtO b FROM x",
            "SELECT a/**/INTO/**/b FROM x",
            "SHOW DATABASES; DROP DATABASE x",
            "SHOW DATABASES DROP DATABASE x",
            "SELECT a FROM x --\n; DROP DATABASE x",
            "SELECT a FROM x --\r; DROP DATABASE x",
            "SELECT '\\'; DROP DATABASE x --' FROM x; DROP DATABASE y",
            "SELECT 'a\\x' FROM x",
            "SELECT 'a' 'b; DROP DATABASE x",
            "SELECT 'a\nb' FROM x",
            "SELECT \"a FROM x",
            "SELECT a FROM x /* open",
            "SELECT a FROM x /* a /* b */ c */",
            "SELECT a FROM x WHERE / ;DROP DATABASE x; /",
            "SELECT a FROM /;DROP DATABASE x;/",
            "SELECT a FROM /'/ ; DROP DATABASE x; /'/",
            "SELECT a FROM /a\\\\/ ; DROP DATABASE x; /b/",
            "SELECT a / into / b FROM x",
            "SELECT /into/ FROM x",
            "SELECT a FROM x\0; DROP DATABASE x",
            "SELECT a FROM x\u{a0}",
            "SELECT a FROM `x`",
            "SELECT 1INTO b FROM x",
            "EXPLAIN ANALYZE SELECT a INTO b FROM x",
            "SELECTS a FROM x",
            "\"SELECT\" a FROM x",
            "DELETE FROM x WHERE time < '2020-01-01T00:00:00Z'",
            "CREATE CONTINUOUS QUERY q ON d BEGIN SELECT mean(a) INTO b FROM c WHERE time > now() - 1h GROUP BY time(1m) END",
            "SET PASSWORD FOR x = 'y'",
            "GRANT ALL TO x",
        ] {
            assert_eq!(effect(text.as_bytes()), Effect::Changes, "{text}");
        }
    }

    #[test]
    fn texts_that_children_would_carry_out_differently() {
        for (text, expected) in [
            ("DELETE FROM x WHERE time < now() - 1h", Effect::ChangesByClock),
            ("SELECT a INTO b FROM x WHERE time > NOW()", Effect::ChangesByClock),
            ("CREATE DATABASE d; DELETE WHERE time < now()", Effect::ChangesByClock),
            ("DELETE FROM x WHERE \"now\" = 1", Effect::Changes),
            ("KILL QUERY 36", Effect::Local),
            ("SHOW QUERIES; kill query 36", Effect::Local),
            ("DELETE WHERE time < now(); KILL QUERY 1", Effect::Local),
        ] {
            assert_eq!(effect(text.as_bytes()), expected, "{text}");
        }
    }

    /// A text in the making: what is written, and whether it changes anything.
    fn piece() -> impl Strategy<Value = (String, bool)> {
        let quiet = prop_oneof![
            Just("'; DROP DATABASE x; --'"),
            Just("\"a\\\"; into\""),
            Just("/* ; DROP DATABASE x */"),
            Just("-- ; into\n"),
            Just("=~ /^a\\/b$/"),
            Just("a / 2"),
            Just(", mean(\"v\")"),
            Just("x"),
            Just("\r\n"),
            Just("'\\\\'"),
            Just("'\\''"),
            Just("; SHOW DATABASES"),
            Just("; SELECT a"),
            Just(";; SELECT a"),
        ]
        .prop_map(|text| (text.to_owned(), false));
        let loud = prop_oneof![
            Just("INTO b"),
            Just("; DROP DATABASE x"),
            Just("; create user x"),
            Just("/**/into/**/"),
            Just("; -- c\n Delete from x"),
        ]
        .prop_map(|text| (text.to_owned(), true));
        prop_oneof![5 => quiet, 1 => loud]
    }

    proptest! {
        /// Whole pieces whose meaning is known, in any order: none of them may hide in another.
        #[test]
        fn nothing_hides(pieces in prop::collection::vec(piece(), 0..12)) {
            let changes = pieces.iter().any(|(_, changes)| *changes);
            let text = pieces.iter().fold("SELECT a FROM x".to_owned(), |text, (piece, _)| text + " " + piece);
            let expected = if changes { Effect::Changes } else { Effect::Reads };
            prop_assert_eq!(effect(text.as_bytes()), expected, "{}", text);
        }

        /// Against servers that see less than we do: one that knows neither comments nor regular expressions, and one that
        /// knows no quotes. Where they find a statement of ours outside of everything, we do not read.
        #[test]
        fn any_octets_are_judged(text in "[A-Za-z'\"/;*\\-\\\\ \n\r=~(),.]{0,40}") {
            let judged = effect(text.as_bytes());
            let plain = text.bytes().all(|octet| !b"'\"/-\\".contains(&octet));
            if plain {
                let reads = !text.split(';').all(|one| one.trim().is_empty()) && text.split(';').all(|one| {
                    let mut words = one.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
                    words.clone().next().is_none_or(|first| READING.iter().any(|known| first.eq_ignore_ascii_case(known)))
                        && !words.any(|word| CHANGING.iter().any(|known| word.eq_ignore_ascii_case(known)))
                });
                prop_assert!(judged != Effect::Reads || reads, "{}", text);
            }
        }
    }
}
