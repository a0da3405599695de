//! Splitting a target or a form into its pairs of name and value, octets as they came.
//!
//! Knows nothing of actions. Splits at every octet that some server splits at; a pair says where a server might not
//! have, and whoever looks for the action judges that.

/// One pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair<'a> {
    pub(super) name: &'a [u8],
    /// What stands behind the first `=`; `None` without one.
    pub(super) value: Option<&'a [u8]>,
    /// Begins behind a semicolon: to most servers it belongs to the value before it.
    pub(super) begins_doubtfully: bool,
    /// Ends at a semicolon, or at the question mark that ends the path.
    pub(super) ends_doubtfully: bool,
}

/// The pairs of one piece of text; empty ones are left out.
pub(super) struct Pairs<'a> {
    rest: &'a [u8],
    lines: bool,
    begins_doubtfully: bool,
    ends_doubtfully: bool,
}

impl<'a> Pairs<'a> {
    /// Of a path without its leading slash. `before_query`: a question mark follows it.
    pub(super) const fn of_path(path: &'a [u8], before_query: bool) -> Self {
        Self { rest: path, lines: false, begins_doubtfully: false, ends_doubtfully: before_query }
    }

    /// Of a query without its question mark.
    pub(super) const fn of_query(query: &'a [u8]) -> Self {
        Self::of_path(query, false)
    }

    /// Of a body: separated by `&` or by the end of a line, or both.
    pub(super) const fn of_body(body: &'a [u8]) -> Self {
        Self { rest: body, lines: true, begins_doubtfully: false, ends_doubtfully: false }
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Pair<'a>;

    fn next(&mut self) -> Option<Pair<'a>> {
        while !self.rest.is_empty() {
            let lines = self.lines;
            let end = self.rest.iter().position(|octet| match octet {
                b'&' | b';' => true,
                b'\r' | b'\n' => lines,
                _ => false,
            });
            let (text, ends_doubtfully, rest) = match end {
                Some(end) => (&self.rest[..end], self.rest[end] == b';', &self.rest[end + 1..]),
                None => (self.rest, self.ends_doubtfully, &[][..]),
            };
            self.rest = rest;
            let begins_doubtfully = std::mem::replace(&mut self.begins_doubtfully, end.is_some() && ends_doubtfully);
            if text.is_empty() {
                continue;
            }
            let (name, value) = match text.iter().position(|octet| *octet == b'=') {
                Some(equals) => (&text[..equals], Some(&text[equals + 1..])),
                None => (text, None),
            };
            return Some(Pair { name, value, begins_doubtfully, ends_doubtfully });
        }
        None
    }
}

/// The first octet of an encoded text, decoded, and how many octets it took: `+` is a blank, `%` wants two hexadecimal
/// digits. `None` if they are not there. The text must not be empty.
pub(super) fn decode_octet(text: &[u8]) -> Option<(u8, usize)> {
    match *text {
        [b'%', high, low, ..] => Some(((hex(high)? << 4) | hex(low)?, 3)),
        [b'%', ..] => None,
        [b'+', ..] => Some((b' ', 1)),
        [octet, ..] => Some((octet, 1)),
        [] => None,
    }
}

const fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pairs: Pairs<'_>) -> Vec<String> {
        pairs
            .map(|pair| {
                format!(
                    "{}{}{}{}",
                    if pair.begins_doubtfully { ";" } else { "" },
                    pair.name.escape_ascii(),
                    pair.value.map_or(String::new(), |value| format!("={}", value.escape_ascii())),
                    if pair.ends_doubtfully { ";" } else { "" },
                )
            })
            .collect()
    }

    #[test]
    fn splits_where_any_server_would() {
        assert_eq!(names(Pairs::of_path(b"a=1&&b=2=3&c", false)), ["a=1", "b=2=3", "c"]);
        assert_eq!(names(Pairs::of_path(b"a=1&b", true)), ["a=1", "b;"]);
        assert_eq!(names(Pairs::of_query(b"a=1;b=2&c=\r3")), ["a=1;", ";b=2", "c=\\r3"]);
        assert_eq!(names(Pairs::of_body(b"a=1\r\nb=2\nc=3\rd=4&e=5\r\n")), ["a=1", "b=2", "c=3", "d=4", "e=5"]);
        assert_eq!(names(Pairs::of_body(b"")), [""; 0]);
        assert_eq!(names(Pairs::of_query(b";=&;;x")), [";=", ";x"]);
    }

    #[test]
    fn decodes_one_octet() {
        assert_eq!(decode_octet(b"%4a1"), Some((0x4a, 3)));
        assert_eq!(decode_octet(b"+"), Some((b' ', 1)));
        assert_eq!(decode_octet(b"%4"), None);
        assert_eq!(decode_octet(b"%g0"), None);
        assert_eq!(decode_octet(b"%+1"), None);
    }
}
