//! The set `solr`: Apache Solr's HTTP API, as far as its requests are on record in its documentation. Not tried against a
//! server: there is no package of it to test with.
//!
//! - Reads: `select`, `query`, `get`, `export`, `admin/ping` and `schema` of a core or collection (`/solr/NAME/…`,
//!   `/api/…/NAME/…`). All else is a change, with one exception for operators' own rules: they come first.
//! - Parameters can make more of a read. Those that change something (`commit` and its kin, building a dictionary, a
//!   ping's `action`) make it a change. Those that send it to another handler, or have the server fetch its content
//!   elsewhere (`qt`, `shards.qt`, `stream.…`), are refused unless they name a handler that reads.
//! - JSON in a body or in the parameter `json` can set any parameter under `params`: then it is a change.
//! - Changes are `once`: an update may count up, or leave an id or a time to the server. Where yours do not, a rule with
//!   `unknown_outcome = "idempotent"` for `/solr/*/update` says so.

use crate::action::parameters::{self, Seen};
use crate::action::rules::{Rule, RuleError, Told};
use crate::action::{Asked, Class};
use crate::error::Fault;

/// Handlers that read, by the paths of both versions of the API.
const READS: &[&str] = &["select", "query", "get", "export"];

/// Handlers that `qt` may name.
const READING_HANDLERS: &[&str] =
    &["", "/select", "/query", "/get", "/export", "select", "standard", "search", "lucene", "dismax", "edismax"];

/// What changes something, or may, wherever it is said.
const CHANGING: &[&str] = &[
    "commit",
    "softcommit",
    "optimize",
    "rollback",
    "expungedeletes",
    "spellcheck.build",
    "spellcheck.reload",
    "suggest.build",
    "suggest.buildall",
    "suggest.reload",
    "suggest.reloadall",
];

pub(super) fn rules() -> Result<Vec<Rule>, RuleError> {
    let mut rules = Vec::new();
    for root in ["/solr", "/api"] {
        // First, so that no name of a core makes an update look like a read.
        for path in ["*/update", "*/update/*"] {
            rules.push(Rule::http(&["*"], &format!("{root}/{path}"), Class::Change)?);
        }
        for handler in READS {
            let rule = Rule::http(&["GET", "HEAD", "POST"], &format!("{root}/*/{handler}"), Class::Read)?;
            rules.push(rule.with_safe(true).when_told("that only reads", reads)?);
        }
        for path in ["*/admin/ping", "*/schema", "*/schema/*"] {
            let rule = Rule::http(&["GET", "HEAD"], &format!("{root}/{path}"), Class::Read)?;
            rules.push(rule.with_safe(true).when_told("that only reads", reads)?);
        }
    }
    rules.push(Rule::http(&["OPTIONS"], "*", Class::Read)?.with_safe(true));
    rules.push(Rule::http(&["POST", "PUT", "PATCH", "DELETE"], "*", Class::Change)?);
    Ok(rules)
}

fn reads(asked: &Asked<'_>) -> Result<Told, Fault> {
    let mut changes = false;
    let seen = parameters::for_each(asked, |_, name, value| {
        let name = name.to_ascii_lowercase();
        if (name == b"qt" || name == b"shards.qt") && !READING_HANDLERS.iter().any(|known| known.as_bytes() == value) {
            return Err(Fault::ActionAmbiguous(HANDLER));
        }
        if name.starts_with(b"stream.") {
            return Err(Fault::ActionAmbiguous(STREAM));
        }
        let sets_any = name.starts_with(b"json") && (is_doubtful_json(&name) || is_doubtful_json(value));
        let other_ping = name == b"action" && !matches!(&*value.to_ascii_lowercase(), b"" | b"ping" | b"status");
        changes |= sets_any || other_ping || CHANGING.iter().any(|known| known.as_bytes() == name);
        Ok(())
    })?;
    let certain = match seen {
        Seen::NeedBody => return Ok(Told::NeedBody),
        Seen::All => true,
        Seen::Other(kind, body) => matches!(kind.as_str(), "application/json" | "text/json") && !is_doubtful_json(body),
        Seen::Doubtful => false,
    };
    Ok(if certain && !changes { Told::Yes } else { Told::No })
}

/// Whether a request in JSON may set parameters of its own, or hide the word that does behind an escape.
fn is_doubtful_json(text: &[u8]) -> bool {
    text.windows(6).any(|word| word.eq_ignore_ascii_case(b"params")) || text.windows(2).any(|pair| pair == b"\\u")
}

// What the client is told.
const HANDLER: &str = "The parameter qt or shards.qt sends the request to another handler, of which it is not known \
    whether it reads. Ask that handler by its path.";
const STREAM: &str =
    "A parameter stream.… would have the server take its content from elsewhere. Send the content itself.";

#[cfg(test)]
mod tests {
    use crate::action::RuleSet;
    use crate::action::tests::{asked, outcome, set};

    fn of(request: &str, kind: Option<&str>, body: Option<&str>) -> String {
        let (method, target) = request.split_once(' ').expect("a request");
        outcome(&set(RuleSet::Solr), &asked(method, target, kind, body.map(str::as_bytes)))
    }

    #[test]
    fn every_rule_and_what_just_misses_it() {
        for (request, expected) in [
            ("GET /solr/techproducts/select?q=*:*&wt=json", "read safe"),
            ("GET /solr/techproducts/query?q=x", "read safe"),
            ("GET /solr/techproducts/get?id=1", "read safe"),
            ("GET /solr/techproducts/export?q=x&sort=a+asc&fl=a", "read safe"),
            ("GET /api/collections/techproducts/select?q=x", "read safe"),
            ("HEAD /solr/techproducts/admin/ping", "read safe"),
            ("GET /solr/techproducts/admin/ping?action=STATUS", "read safe"),
            ("GET /solr/techproducts/schema", "read safe"),
            ("GET /solr/techproducts/schema/fields/name", "read safe"),
            ("OPTIONS /solr/", "read safe"),
            ("GET /solr/techproducts/admin/ping?action=disable", "change once"),
            ("POST /solr/techproducts/admin/ping", "change once"),
            ("POST /solr/techproducts/schema", "change once"),
            ("GET /solr/techproducts/schemas", "change once"),
            ("GET /solr/schema/dataimport?command=full-import", "change once"),
            ("PUT /solr/techproducts/select?q=x", "change once"),
            ("GET /solr/techproducts/selects?q=x", "change once"),
            ("GET /solr/select", "change once"),
            ("GET /select?q=x", "change once"),
            ("GET /solr/techproducts/update?commit=true", "change once"),
            ("GET /solr/techproducts/update?stream.body=%3Cdelete/%3E", "change once"),
            ("POST /solr/techproducts/update/json/docs", "change once"),
            ("GET /solr/techproducts/update/select", "change once"),
            ("GET /solr/techproducts/stream?expr=update(x,search(y))", "change once"),
            ("GET /solr/admin/collections?action=CREATE&name=x", "change once"),
            ("GET /solr/techproducts/select?q=x&commit=true", "change once"),
            ("GET /solr/techproducts/select?q=x&softCommit=true", "change once"),
            ("GET /solr/techproducts/select?spellcheck.build=true", "change once"),
            ("GET /solr/techproducts/select?suggest.%62uild=true", "change once"),
            ("GET /solr/techproducts/select?json=%7Bquery:x%7D", "read safe"),
            ("GET /solr/techproducts/select?json=%7Bparams:%7B%7D%7D", "change once"),
            ("GET /solr/techproducts/select?json.params.x=y", "change once"),
            ("GET /solr/techproducts/select?q=x;y", "change once"),
            ("GET /solr/techproducts/select?qt=/select", "read safe"),
            ("GET /solr/techproducts/select?qt=dismax", "read safe"),
            ("GET /solr/techproducts/select?qt=/update", "action_ambiguous"),
            ("GET /solr/techproducts/select?q%74=%2Fupdate", "action_ambiguous"),
            ("GET /solr/techproducts/select?shards.qt=/update", "action_ambiguous"),
            ("GET /solr/techproducts/select?q=x;qt=/update", "action_ambiguous"),
            ("GET /solr/techproducts/select?stream.body=x", "action_ambiguous"),
            ("GET /solr/techproducts/select?stream.url=http://x/", "action_ambiguous"),
            ("GET /solr/techproducts/select?streams=x", "read safe"),
            ("GET /solr/techproducts/%73elect?q=x", "action_ambiguous"),
            ("GET /solr/techproducts/update/../select?q=x", "action_ambiguous"),
        ] {
            assert_eq!(of(request, None, None), expected, "{request}");
        }
    }

    #[test]
    fn a_query_in_the_body() {
        let form = Some("application/x-www-form-urlencoded");
        let json = Some("application/json");
        for (kind, body, expected) in [
            (form, "q=x&rows=1", "read safe"),
            (form, "q=x&qt=/update", "action_ambiguous"),
            (form, "q=x&commit=true", "change once"),
            (json, "{\"query\": \"x\"}", "read safe"),
            (json, "{\"params\": {\"qt\": \"/update\"}}", "change once"),
            (json, "{\"p\\u0061rams\": {}}", "change once"),
            (Some("text/xml"), "<delete/>", "change once"),
            (Some("multipart/form-data; boundary=B"), "--B", "change once"),
        ] {
            assert_eq!(of("POST /solr/techproducts/select", kind, Some(body)), expected, "{body}");
        }
    }
}
