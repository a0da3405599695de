//! The value of `Content-Type` and `Content-Disposition`: a word and its parameters (RFC 9110 5.6.6), read so that only
//! one reading is possible.
//!
//! Stricter than the RFC: an escaped quotation mark is refused, because servers differ on where such a value ends
//! (browsers send `%22`, RFC 9110 has `\"`, and many parsers know no escapes).

/// A field's value that can be read in more than one way, or in none.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

/// The parameters behind the first word.
pub(super) struct Params<'a> {
    rest: &'a [u8],
}

/// The word before the first semicolon, blanks around it removed, and its parameters.
pub(super) fn word_and_params(value: &[u8]) -> (&[u8], Params<'_>) {
    let end = value.iter().position(|octet| *octet == b';').unwrap_or(value.len());
    (value[..end].trim_ascii(), Params { rest: &value[end..] })
}

/// A token of RFC 9110 5.6.2.
pub(super) fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|octet| octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(octet))
}

impl<'a> Iterator for Params<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = self.rest.trim_ascii_start();
            let (first, rest) = rest.split_first()?;
            if *first != b';' {
                self.rest = &[];
                return Some(Err(Unreadable));
            }
            self.rest = rest.trim_ascii_start();
            // An empty parameter: a semicolon at the end, or two of them. Harmless and common.
            if !matches!(self.rest.first(), None | Some(b';')) {
                let pair = self.take_pair().ok_or(Unreadable);
                if pair.is_err() {
                    self.rest = &[];
                }
                return Some(pair);
            }
        }
    }
}

impl<'a> Params<'a> {
    fn take_pair(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let equals = self.rest.iter().position(|octet| *octet == b'=')?;
        let name = &self.rest[..equals];
        let rest = &self.rest[equals + 1..];
        let (value, rest) = match rest.strip_prefix(b"\"") {
            Some(quoted) => {
                let end = quoted.iter().position(|octet| *octet == b'"')?;
                let value = &quoted[..end];
                if value.ends_with(b"\\") || hides_name(value) {
                    return None;
                }
                (value, &quoted[end + 1..])
            }
            None => {
                let end = rest.iter().position(|octet| matches!(octet, b';' | b' ' | b'\t')).unwrap_or(rest.len());
                if !is_token(&rest[..end]) {
                    return None;
                }
                rest.split_at(end)
            }
        };
        self.rest = rest;
        is_token(name).then_some((name, value))
    }
}

/// A quoted value in which a parser that splits at every semicolon would find a parameter `name`.
fn hides_name(value: &[u8]) -> bool {
    value
        .split(|octet| *octet == b';')
        .skip(1)
        .any(|piece| piece.trim_ascii_start().get(..4).is_some_and(|start| start.eq_ignore_ascii_case(b"name")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &[u8]) -> Result<String, Unreadable> {
        let (word, params) = word_and_params(value);
        let mut text = String::from_utf8_lossy(word).into_owned();
        for param in params {
            let (name, value) = param?;
            text += &format!("|{}={}", name.escape_ascii(), value.escape_ascii());
        }
        Ok(text)
    }

    #[test]
    fn one_reading() {
        assert_eq!(read(b"text/plain"), Ok("text/plain".into()));
        assert_eq!(read(b" text/plain ; charset=utf-8 ;; a=\"b;c\" ; "), Ok("text/plain|charset=utf-8|a=b;c".into()));
        assert_eq!(
            read(b"form-data; filename=\"C:\\\\x\\a b.txt\""),
            Ok("form-data|filename=C:\\\\\\\\x\\\\a b.txt".into())
        );
    }

    #[test]
    fn more_readings_or_none() {
        for value in [
            &b"x; a"[..],
            b"x; a=",
            b"x; a=\"b",
            b"x; a=\"b\\\"; name=\\\"c\"",
            b"x; a=\"b\"c",
            b"x; a =b",
            b"x; a= b",
            b"x; a=b c",
            b"x; filename=\"y; name=action\"",
            b"x; a=b,c=d",
        ] {
            assert_eq!(read(value), Err(Unreadable), "{}", value.escape_ascii());
        }
    }
}
