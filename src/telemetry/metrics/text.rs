//! Prometheus' text format, version 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats).

use std::fmt::{Display, Write};

use super::Histogram;

const PAGE: &str = include_str!("../../../docs/metrics.md");

/// The response to a scrape. Metric families are written one after the other, each with all its samples.
#[derive(Debug, Default)]
pub struct Exposition(pub String);

pub struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
}

type Labels<'a> = &'a [(&'static str, &'a str)];

impl Exposition {
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// Begins the family with this name, whose type and meaning are those of the page.
    pub fn family(&mut self, name: &'static str) -> Family<'_> {
        let (kind, help) = documented(name).unwrap_or_else(|| panic!("docs/metrics.md has no {name}"));
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { text: &mut self.0, name }
    }

    /// Writes a family that is one sample without labels.
    pub fn value(&mut self, name: &'static str, value: impl Display) {
        self.family(name).sample(&[], value);
    }
}

/// Finds type and meaning in the line of a metric, which gives the labels after the type: "- `NAME` (TYPE; LABELS): MEANING".
fn documented(name: &str) -> Option<(&'static str, &'static str)> {
    let line = PAGE.lines().find_map(|line| line.strip_prefix("- `")?.strip_prefix(name)?.strip_prefix("` ("))?;
    let (kind, meaning) = line.split_once("): ")?;
    Some((kind.split(';').next().unwrap_or(kind), meaning))
}

impl Family<'_> {
    pub fn sample(&mut self, labels: Labels<'_>, value: impl Display) -> &mut Self {
        self.line("", labels, value);
        self
    }

    /// Writes one sample for each set of labels.
    pub fn samples<'l, const N: usize>(
        &mut self,
        samples: impl IntoIterator<Item = ([(&'static str, &'l str); N], impl Display)>,
    ) {
        for (labels, value) in samples {
            self.sample(&labels, value);
        }
    }

    pub fn spread(&mut self, labels: Labels<'_>, histogram: &Histogram) {
        let (bounds, count) = histogram.cumulative();
        for (bound, up_to) in bounds {
            self.line("_bucket", &[labels, &[("le", &bound.to_string())]].concat(), up_to);
        }
        self.line("_bucket", &[labels, &[("le", "+Inf")]].concat(), count);
        self.line("_sum", labels, histogram.sum());
        self.line("_count", labels, count);
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, value: impl Display) {
        let escaped = |value: &str| value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', "\\n");
        let labels: Vec<_> = labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{}{suffix}{labels} {value}", self.name);
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn families_are_written_in_the_text_format() {
        let mut exposition = Exposition::default();
        exposition.family("petstore_refused_total").sample(&[], 3).sample(&[("b", "\"\\\n")], 4);
        let histogram = Histogram::new(&[50_000, 1_000_000], 1e9);
        histogram.observe(50_000);
        histogram.observe(2_000_000_000);
        exposition.family("petstore_read_duration_seconds").spread(&[("d", "e")], &histogram);
        expect![[r##"
            # HELP petstore_refused_total Requests refused, by the limit that was reached.
            # TYPE petstore_refused_total counter
            petstore_refused_total 3
            petstore_refused_total{b="\"\\\n"} 4
            # HELP petstore_read_duration_seconds Duration of a database read.
            # TYPE petstore_read_duration_seconds histogram
            petstore_read_duration_seconds_bucket{d="e",le="0.00005"} 1
            petstore_read_duration_seconds_bucket{d="e",le="0.001"} 1
            petstore_read_duration_seconds_bucket{d="e",le="+Inf"} 2
            petstore_read_duration_seconds_sum{d="e"} 2.00005
            petstore_read_duration_seconds_count{d="e"} 2
        "##]]
        .assert_eq(&exposition.0);
    }
}
