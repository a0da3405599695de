//! Errors of a configuration, drawn: place, line, caret, what is wrong, what to do.
//!
//! Problems are collected while a file is judged ([`Problems`]) and drawn once, in the order of the file
//! ([`ConfigErrors`]). Only the drawing knows lines and columns; everything else speaks of octet ranges.

use std::fmt;
use std::ops::Range;

/// Characters of a source line that are shown; a longer line is cut around the place.
const LINE_SHOWN_CHARS: usize = 120;

/// Errors that are drawn. A file with more is none of ours, and its errors would fill the disk of a journal.
const ERRORS_MAX: usize = 1000;

/// Everything that is wrong with one configuration, in the order of the file. Never empty.
///
/// Displayed as one block an error:
///
/// ```text
/// antiphon.toml:12:10: error: no policy is called "leastconn"
/// 12 | policy = "leastconn"
///    |          ^^^^^^^^^^^
/// help: did you mean "least_conn"?
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors {
    errors: Vec<ConfigError>,
}

/// One error of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file as it was named to [`Config::parse`](super::Config::parse).
    pub file: Box<str>,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: Box<str>,
    /// What to do about it.
    pub help: Box<str>,
    /// The line, as shown.
    source: Box<str>,
    /// What stands under the line: blanks (and the line's own tabs), then carets.
    caret: Box<str>,
}

/// What is wrong with a value, before its place is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) message: String,
    pub(super) help: String,
}

/// Problems found so far, by octet ranges of the text.
#[derive(Debug, Default)]
pub(super) struct Problems {
    found: Vec<(Range<usize>, Wrong)>,
}

// === impl Wrong ===

impl Wrong {
    pub(super) fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: help.into() }
    }
}

// === impl Problems ===

impl Problems {
    /// Notes a problem at `span`.
    pub(super) fn push(&mut self, span: Range<usize>, wrong: Wrong) {
        self.found.push((span, wrong));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(super) fn count(&self) -> usize {
        self.found.len()
    }

    /// Draws all problems against the text they were found in.
    pub(super) fn into_errors(mut self, file: &str, text: &str) -> ConfigErrors {
        assert!(!self.is_empty(), "errors without a problem");
        self.found.sort_by_key(|(span, _)| (span.start, span.end));
        self.found.dedup();
        self.found.truncate(ERRORS_MAX);
        let lines: Vec<usize> = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let draw = |(span, wrong)| ConfigError::draw(file, text, &lines, &span, wrong);
        let errors = self.found.into_iter().map(draw).collect();
        ConfigErrors { errors }
    }
}

// === impl ConfigErrors ===

impl ConfigErrors {
    /// The errors, in the order of the file; at least one.
    #[must_use]
    pub fn errors(&self) -> &[ConfigError] {
        &self.errors
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

// === impl ConfigError ===

impl ConfigError {
    /// `lines` are where the text's lines begin.
    fn draw(file: &str, text: &str, lines: &[usize], span: &Range<usize>, wrong: Wrong) -> Self {
        let start = floor_char(text, span.start);
        let end = floor_char(text, span.end).max(start);
        let line = lines.partition_point(|begin| *begin <= start);
        let line_start = lines[line - 1];
        let line_end = text[start..].find('\n').map_or(text.len(), |length| start + length);
        // A caret never leaves its line: of a range over several lines the first is marked.
        let marked = text[start..end.min(line_end)].trim_end().chars().count();
        let column = text[line_start..start].chars().count();
        let (source, caret) = cut(text[line_start..line_end].trim_end_matches('\r'), column, marked);
        Self {
            file: file.into(),
            line,
            column: column + 1,
            message: wrong.message.into(),
            help: wrong.help.into(),
            source: source.into(),
            caret: caret.into(),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let gutter = number.len();
        writeln!(f, "{}:{}:{}: error: {}", self.file, self.line, self.column, self.message)?;
        writeln!(f, "{number} | {}", self.source)?;
        writeln!(f, "{:gutter$} | {}", "", self.caret)?;
        write!(f, "help: {}", self.help)
    }
}

/// The nearest place at or before `at` where a character begins; the end of the text for what lies beyond it.
fn floor_char(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The part of a line that is shown and what stands under it: `marked` carets (at least one) from `column` on, both in
/// characters. Control characters other than tabs are shown as U+FFFD, so that a file cannot write to the terminal.
fn cut(line: &str, column: usize, marked: usize) -> (String, String) {
    let from = if column < LINE_SHOWN_CHARS * 2 / 3 { 0 } else { column - LINE_SHOWN_CHARS / 3 };
    let mut shown = String::new();
    let mut under = String::new();
    if from > 0 {
        shown.push('…');
        under.push(' ');
    }
    for character in line.chars().skip(from).take(LINE_SHOWN_CHARS) {
        shown.push(if character.is_control() && character != '\t' { '\u{FFFD}' } else { character });
    }
    under.extend(line.chars().skip(from).take(column - from).map(|c| if c == '\t' { '\t' } else { ' ' }));
    let room = (from + LINE_SHOWN_CHARS).saturating_sub(column);
    under.extend(std::iter::repeat_n('^', marked.min(room).max(1)));
    if line.chars().nth(from + LINE_SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    (shown, under)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(text: &str, span: Range<usize>) -> String {
        let mut problems = Problems::default();
        problems.push(span, Wrong::new("wrong", "mend it"));
        problems.into_errors("f", text).to_string()
    }

    #[test]
    fn the_caret_stands_under_the_place() {
        assert_eq!(drawn("a = 1\nbc = 22\n", 11..13), "f:2:6: error: wrong\n2 | bc = 22\n  |      ^^\nhelp: mend it");
        assert_eq!(drawn("a", 1..1), "f:1:2: error: wrong\n1 | a\n  |  ^\nhelp: mend it");
        assert_eq!(drawn("", 0..9), "f:1:1: error: wrong\n1 | \n  | ^\nhelp: mend it");
        assert_eq!(drawn("\tä = 1\r\n", 6..7), "f:1:6: error: wrong\n1 | \tä = 1\n  | \t    ^\nhelp: mend it");
        assert_eq!(drawn("a = [1,\n2]\n", 4..10), "f:1:5: error: wrong\n1 | a = [1,\n  |     ^^^\nhelp: mend it");
        assert_eq!(drawn("\u{1b}[2J = 1", 0..4), "f:1:1: error: wrong\n1 | \u{FFFD}[2J = 1\n  | ^^^^\nhelp: mend it");
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let text = format!("{}HERE{}", "x".repeat(500), "y".repeat(500));
        let drawn = drawn(&text, 500..504);
        let lines: Vec<&str> = drawn.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() < LINE_SHOWN_CHARS + 10), "{drawn}");
        let place = lines[1].find("HERE").expect("the place is shown");
        let before = lines[1][..place].chars().count();
        assert_eq!(lines[2].find("^^^^").map(|at| lines[2][..at].chars().count()), Some(before));
    }
}
