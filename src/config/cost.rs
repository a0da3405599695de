//! `[group.NAME.cost]`: what an operator may tell the predictive policy.

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::de::DeValue;

use super::error::{Problems, Wrong};
use super::table::Table;
use super::values::{Judged, duration, plain};
use crate::action::Dialect;
use crate::route::cost::Options;

const SPILL: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(10);
const SLOW_START: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(900);
/// The parameter by which an ACI client says how much it wants.
const ACI_SIZE_PARAMETER: &str = "MaxResults";

/// What a group's predictive policy is told.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// The model's own.
    pub options: Options,
    /// Where this front stands: children of another location are dearer.
    pub location: Option<Box<str>>,
}

impl Cost {
    /// Is a child of this location in another one than the front? Not where either is unknown.
    #[must_use]
    pub fn is_away(&self, location: Option<&str>) -> bool {
        matches!((&self.location, location), (Some(own), Some(other)) if **own != *other)
    }
}

/// What the table says, over the dialect's defaults; `table` may be missing.
pub(super) fn cost(table: Option<Table<'_>>, dialect: Dialect, problems: &mut Problems) -> Cost {
    let mut options =
        Options { size_parameter: (dialect == Dialect::Aci).then(|| ACI_SIZE_PARAMETER.into()), ..Options::default() };
    let Some(mut table) = table else { return Cost { options, location: None } };
    if let Some(found) = table.optional(problems, "size_parameter", plain) {
        options.size_parameter = Some((*found.get_ref()).into());
    }
    options.spill = table.or(problems, "spill", options.spill, duration(SPILL));
    options.slow_start = table.or(problems, "slow_start", options.slow_start, duration(SLOW_START));
    options.prequal_quantile = table.or(problems, "prequal_quantile", options.prequal_quantile, share);
    let location = table.optional(problems, "location", plain).map(|found| (*found.get_ref()).into());
    table.finish(problems);
    Cost { options, location }
}

/// A number from 0 to 1.
fn share(value: &DeValue<'_>) -> Judged<f32> {
    let text = value.as_float().map(|float| float.as_str()).or_else(|| Some(value.as_integer()?.as_str()));
    let number = text.and_then(|text| text.replace('_', "").parse().ok());
    let wrong = || Wrong::new("expected a number from 0 to 1", "write it as in 0.84");
    number.filter(|number: &f32| (0.0..=1.0).contains(number)).ok_or_else(wrong)
}
