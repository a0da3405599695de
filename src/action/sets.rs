//! The built-in sets of rules. A set is a file and a line in the two lists here.

use super::rules::Rule;
use super::{Dialect, words};

mod http;
mod idol;
mod influxdb;
mod solr;
mod webdav;

words! {
    /// A built-in set, asked after the operator's rules.
    RuleSet {
        /// No set: the operator's rules and `unknown` decide alone.
        None = "none",
        /// The IDOL servers' actions (dialect `aci`).
        Idol = "idol",
        /// The methods of HTTP and WebDAV (dialect `http`).
        Http = "http",
        /// Trees of files by WebDAV (dialect `http`).
        Webdav = "webdav",
        /// Apache Solr (dialect `http`).
        Solr = "solr",
        /// InfluxDB 1.x (dialect `http`).
        Influxdb = "influxdb",
    }
}

impl RuleSet {
    /// The dialect that the set is made for; `None` fits both.
    #[must_use]
    pub const fn dialect(self) -> Option<Dialect> {
        match self {
            Self::None => None,
            Self::Idol => Some(Dialect::Aci),
            Self::Http | Self::Webdav | Self::Solr | Self::Influxdb => Some(Dialect::Http),
        }
    }

    pub(super) fn rules(self) -> Vec<Rule> {
        let rules = match self {
            Self::None => Ok(Vec::new()),
            Self::Idol => idol::rules(),
            Self::Http => http::rules(),
            Self::Webdav => webdav::rules(),
            Self::Solr => solr::rules(),
            Self::Influxdb => influxdb::rules(),
        };
        rules.expect("the built-in sets are tested")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_is_made_of_rules() {
        for set in RuleSet::ALL {
            assert!(set.rules().iter().all(|rule| !rule.name().is_empty()), "{set}");
        }
    }
}
