//! The envelope in which ACI servers answer, for what we answer ourselves: `autnresponse` with its three children, as
//! XML or, where the request asked for it, as JSON in one of its two forms.
//!
//! A small tree ([`Element`]) and its writers; what stands in the tree is the caller's. Sizes are those of an
//! operator's listing: this allocates freely.

use std::borrow::Cow;

use quick_xml::Writer;
use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};
use serde_json::{Map, Value};

use crate::error::Fault;

/// The namespace that every envelope declares.
const NAMESPACE: &str = "http://schemas.autonomy.com/aci/";

/// How the request wants its answer: the parameter `ResponseFormat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// The envelope as it is.
    #[default]
    Xml,
    /// Text under `$`, attributes under `@name`; a child that stands alone is an object, several are an array.
    Json,
    /// Plain values; what can be several is always an array.
    SimpleJson,
}

/// An element: a name, attributes in order, and either a text or further elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    content: Content,
    /// One of a list, also where the list has one.
    listed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Text(String),
    Elements(Vec<Element>),
}

/// What an ACI error says: the fields of its `error` element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble<'a> {
    /// The number behind the action's name in `errorid`.
    pub number: u16,
    /// What is wrong, for people.
    pub text: &'a str,
    /// What to know beside it.
    pub description: Cow<'a, str>,
    /// A stable word in capitals.
    pub code: Cow<'a, str>,
}

// === impl Format ===

impl Format {
    /// The format that a value of `ResponseFormat` names.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        [("xml", Self::Xml), ("json", Self::Json), ("simplejson", Self::SimpleJson)]
            .into_iter()
            .find_map(|(name, format)| word.eq_ignore_ascii_case(name).then_some(format))
    }

    /// For `Content-Type`. ACI clients take an answer for an answer only if it begins with `text/xml`.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Xml => "text/xml;charset=utf-8",
            Self::Json | Self::SimpleJson => "application/json;charset=utf-8",
        }
    }
}

// === impl Element ===

impl Element {
    /// An element with a text.
    #[must_use]
    pub fn text(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, attributes: Vec::new(), content: Content::Text(text.into()), listed: false }
    }

    /// An element with elements in it.
    #[must_use]
    pub const fn of(name: &'static str, elements: Vec<Self>) -> Self {
        Self { name, attributes: Vec::new(), content: Content::Elements(elements), listed: false }
    }

    /// With one attribute more.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.attributes.push((name, value.into()));
        self
    }

    /// One of a list.
    #[must_use]
    pub const fn listed(mut self) -> Self {
        self.listed = true;
        self
    }

    fn write(&self, out: &mut Writer<Vec<u8>>) -> std::io::Result<()> {
        let mut start = BytesStart::new(self.name);
        for (name, value) in &self.attributes {
            start.push_attribute((*name, &*allowed(value)));
        }
        match &self.content {
            Content::Elements(elements) if elements.is_empty() => return out.write_event(Event::Empty(start)),
            Content::Text(text) if text.is_empty() => return out.write_event(Event::Empty(start)),
            Content::Text(text) => {
                out.write_event(Event::Start(start))?;
                out.write_event(Event::Text(BytesText::new(&allowed(text))))?;
            }
            Content::Elements(elements) => {
                out.write_event(Event::Start(start))?;
                elements.iter().try_for_each(|element| element.write(out))?;
            }
        }
        out.write_event(Event::End(BytesEnd::new(self.name)))
    }

    /// Without its name, which is the key.
    fn json(&self, simple: bool) -> Value {
        let plain = simple && self.attributes.is_empty();
        if let Content::Text(text) = &self.content
            && plain
        {
            return Value::from(text.as_str());
        }
        let mut map = Map::new();
        for (name, value) in &self.attributes {
            let key = if simple { (*name).to_owned() } else { format!("@{name}") };
            map.insert(key, Value::from(value.as_str()));
        }
        match &self.content {
            Content::Text(text) if text.is_empty() && !map.is_empty() => {}
            Content::Text(text) => _ = map.insert("$".to_owned(), Value::from(text.as_str())),
            Content::Elements(elements) => {
                for element in elements {
                    let key = if simple { element.name.trim_start_matches("autn:") } else { element.name };
                    let value = element.json(simple);
                    match map.get_mut(key) {
                        Some(Value::Array(list)) => list.push(value),
                        Some(first) => *first = Value::Array(vec![first.take(), value]),
                        None if simple && element.listed => _ = map.insert(key.to_owned(), Value::Array(vec![value])),
                        None => _ = map.insert(key.to_owned(), value),
                    }
                }
            }
        }
        Value::Object(map)
    }
}

/// The envelope of an answer: the action's name in capitals, whether it succeeded, its data.
#[must_use]
pub fn envelope(action: &str, success: bool, data: Vec<Element>, format: Format) -> Vec<u8> {
    let children = vec![
        Element::text("action", action.to_ascii_uppercase()),
        Element::text("response", if success { "SUCCESS" } else { "ERROR" }),
        Element::of("responsedata", data),
    ];
    let envelope = Element::of("autnresponse", children);
    match format {
        Format::Xml => {
            let mut out = Writer::new(b"<?xml version='1.0' encoding='UTF-8' ?>\n".to_vec());
            envelope.with("xmlns:autn", NAMESPACE).write(&mut out).expect("a Vec takes all octets");
            let mut out = out.into_inner();
            out.push(b'\n');
            out
        }
        Format::Json | Format::SimpleJson => {
            let value = envelope.json(format == Format::SimpleJson);
            format!("{}\n", Value::Object(Map::from_iter([("autnresponse".to_owned(), value)]))).into_bytes()
        }
    }
}

/// The envelope of an error. `date` is the time of day as [`http_date`](super::http_date) writes it.
#[must_use]
pub fn error_envelope(action: &str, trouble: &Trouble<'_>, date: &[u8; 29], format: Format) -> Vec<u8> {
    let number = trouble.number;
    let id = format!("ANTIPHON{}{number}", action.to_ascii_uppercase());
    let error = vec![
        Element::text("errorid", id),
        Element::text("rawerrorid", format!("{number:#X}")),
        Element::text("errorstring", trouble.text),
        Element::text("errordescription", &*trouble.description),
        Element::text("errorcode", &*trouble.code),
        Element::text("errortime", aci_time(date)),
    ];
    envelope(action, false, vec![Element::of("error", error)], format)
}

impl Trouble<'_> {
    /// What an ACI client is told of a fault.
    #[must_use]
    pub fn of(fault: Fault) -> Self {
        let (status, code) = (fault.status(), fault.code());
        Trouble {
            number: status,
            text: fault.text(),
            description: format!("antiphon says this, not a server behind it: {code}, HTTP status {status}.").into(),
            code: code.to_ascii_uppercase().into(),
        }
    }
}

/// `dd MMM yy HH:mm:ss`, out of `Sun, 06 Nov 1994 08:49:37 GMT`.
#[must_use]
pub fn aci_time(date: &[u8; 29]) -> String {
    let part = |from: usize, to: usize| String::from_utf8_lossy(&date[from..to]).into_owned();
    format!("{} {} {} {}", part(5, 7), part(8, 11), part(14, 16), part(17, 25))
}

/// A text without what XML 1.0 (2.2) cannot say, not even escaped.
fn allowed(text: &str) -> Cow<'_, str> {
    let is_allowed =
        |letter: char| matches!(letter, '\t' | '\n' | '\r' | ' '..) && !matches!(letter, '\u{FFFE}' | '\u{FFFF}');
    if text.chars().all(is_allowed) {
        return Cow::Borrowed(text);
    }
    text.chars().map(|letter| if is_allowed(letter) { letter } else { '\u{FFFD}' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::http_date;

    fn said(action: &str, data: Vec<Element>, format: Format) -> String {
        String::from_utf8(envelope(action, true, data, format)).unwrap()
    }

    fn engine(id: &str) -> Element {
        Element::text("engine", "").with("id", id).with("host", "a<b").listed()
    }

    #[test]
    fn three_children_in_order() {
        let text = said("Query", vec![Element::text("pid", "7 & \u{1}"), engine("0")], Format::Xml);
        assert_eq!(
            text,
            "<?xml version='1.0' encoding='UTF-8' ?>\n\
             <autnresponse xmlns:autn=\"http://schemas.autonomy.com/aci/\"><action>QUERY</action>\
             <response>SUCCESS</response><responsedata><pid>7 &amp; \u{FFFD}</pid>\
             <engine id=\"0\" host=\"a&lt;b\"/></responsedata></autnresponse>\n"
        );
    }

    #[test]
    fn json_has_an_object_for_one_and_an_array_for_several() {
        let one = said("x", vec![Element::text("autn:pid", "7"), engine("0")], Format::Json);
        assert_eq!(
            one,
            "{\"autnresponse\":{\"action\":{\"$\":\"X\"},\"response\":{\"$\":\"SUCCESS\"},\"responsedata\":\
             {\"autn:pid\":{\"$\":\"7\"},\"engine\":{\"@host\":\"a<b\",\"@id\":\"0\"}}}}\n"
        );
        let two = said("x", vec![engine("0"), engine("1")], Format::Json);
        assert!(two.contains("\"engine\":[{\"@host\":\"a<b\",\"@id\":\"0\"},{"), "{two}");
    }

    #[test]
    fn simple_json_has_plain_values_and_lists() {
        let one = said("x", vec![Element::text("autn:pid", "7"), engine("0")], Format::SimpleJson);
        assert_eq!(
            one,
            "{\"autnresponse\":{\"action\":\"X\",\"response\":\"SUCCESS\",\"responsedata\":\
             {\"engine\":[{\"host\":\"a<b\",\"id\":\"0\"}],\"pid\":\"7\"}}}\n"
        );
    }

    #[test]
    fn an_error_has_its_six_fields() {
        let date = http_date(784_111_777);
        let text =
            String::from_utf8(error_envelope("query", &Trouble::of(Fault::NoChild), &date, Format::Xml)).unwrap();
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part} in {text}"));
        let parts = [
            "<response>ERROR</response><responsedata><error><errorid>ANTIPHONQUERY503</errorid>",
            "<rawerrorid>0x1F7</rawerrorid>",
            "<errorstring>",
            "<errordescription>",
            "<errorcode>NO_CHILD</errorcode>",
            "<errortime>06 Nov 94 08:49:37</errortime></error></responsedata></autnresponse>",
        ];
        assert!(parts.windows(2).all(|two| at(two[0]) < at(two[1])), "{text}");
    }
}
