//! Writes the outcome as a Markdown page.

use std::{fmt, fs, process::Command, thread, time::Duration};

use crate::{side::Sample, start::STARTS};

#[derive(Clone, Copy)]
pub enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    fn met(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(bound) => ratio >= bound,
            Self::AtMost(bound) => ratio <= bound,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, "≥ {bound}"),
            Self::AtMost(bound) => write!(f, "≤ {bound}"),
        }
    }
}

/// Where other processes take more of the processors than this part, a ratio says little.
const QUIET: f64 = 0.10;

/// One comparison.
pub struct Row {
    what: String,
    labels: [&'static str; 2],
    unit: &'static str,
    pairs: Vec<(f64, f64)>,
    /// Where there was a load: the processor time for an answer of each side, and the part that other processes took.
    cpu: Option<([[f64; 3]; 2], f64)>,
    target: Option<Target>,
}

impl Row {
    /// Makes a comparison of two loads.
    pub fn new(
        what: impl Into<String>,
        labels: [&'static str; 2],
        pairs: &[(Sample, Sample)],
        value: impl Fn(&Sample) -> f64,
    ) -> Self {
        let cpu = |side: fn(&(Sample, Sample)) -> &Sample| {
            [0, 1, 2].map(|part| median(pairs.iter().map(|pair| side(pair).cpu[part])))
        };
        let others = median(pairs.iter().flat_map(|pair| [pair.0.others, pair.1.others]));
        Self {
            pairs: pairs.iter().map(|(ours, other)| (value(ours), value(other))).collect(),
            cpu: Some(([cpu(|pair| &pair.0), cpu(|pair| &pair.1)], others)),
            ..Self::plain(what, labels)
        }
    }

    /// Makes a comparison without figures, which come with `pair`.
    pub fn plain(what: impl Into<String>, labels: [&'static str; 2]) -> Self {
        Self { what: what.into(), labels, unit: "", pairs: Vec::new(), cpu: None, target: None }
    }

    pub fn pair(mut self, ours: f64, other: f64) -> Self {
        self.pairs.push((ours, other));
        self
    }

    pub fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    pub fn target(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    fn ratios(&self) -> impl Iterator<Item = f64> {
        self.pairs.iter().map(|(ours, other)| ours / other)
    }

    fn ratio(&self) -> String {
        let [low, high] = [self.ratios().fold(f64::MAX, f64::min), self.ratios().fold(f64::MIN, f64::max)];
        let middle = figure(median(self.ratios()));
        if self.pairs.len() == 1 { middle } else { format!("{middle} ({} to {})", figure(low), figure(high)) }
    }

    fn verdict(&self) -> String {
        let verdict = match self.target {
            None => "",
            Some(target) if target.met(median(self.ratios())) => "pass",
            Some(_) => "**miss**",
        };
        let disturbed = self.cpu.is_some_and(|(_, others)| others > QUIET);
        format!("{verdict}{}", if disturbed { " (disturbed)" } else { "" })
    }

    /// Returns a line for the terminal, while the run goes on.
    pub fn summary(&self) -> String {
        format!("{}: {} {}", self.what, self.ratio(), self.verdict())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [ours, other] =
            [median(self.pairs.iter().map(|p| p.0)), median(self.pairs.iter().map(|p| p.1))].map(figure);
        let ([a, b], unit) = (self.labels, self.unit);
        let target = self.target.map(|target| target.to_string()).unwrap_or_default();
        let (what, ratio, verdict) = (&self.what, self.ratio(), self.verdict());
        writeln!(f, "| {what} | {unit} | {a} {ours} | {b} {other} | {ratio} | {target} | {verdict} |")
    }
}

pub struct Report {
    pub rows: Vec<Row>,
    pub rounds: usize,
    pub round: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", machine())?;
        writeln!(
            f,
            "{} pairs of rounds of {:?} each, by turns; for starts of an empty process {} pairs. Figures are",
            self.rounds,
            self.round,
            self.rounds * STARTS
        )?;
        writeln!(f, "medians; the ratio is the median of the ratios of the pairs, with the least and the greatest.\n")?;
        writeln!(f, "| scenario | unit | A | B | A ÷ B | target | verdict |\n|---|---|---|---|---|---|---|")?;
        self.rows.iter().try_for_each(|row| write!(f, "{row}"))?;
        writeln!(
            f,
            "\nProcessor time an answer, in µs: load generator + server + upstream. The last column says how much of the"
        )?;
        writeln!(
            f,
            "processors other processes took meanwhile; above {:.0} % the verdict says disturbed.\n",
            QUIET * 100.0
        )?;
        writeln!(f, "| scenario | A | B | others |\n|---|---|---|---|")?;
        for row in &self.rows {
            if let Some(([ours, other], others)) = row.cpu {
                let sum = |parts: [f64; 3]| parts.map(figure).join(" + ");
                let [a, b] = row.labels;
                let others = others * 100.0;
                writeln!(f, "| {} | {a} {} | {b} {} | {others:.0} % |", row.what, sum(ours), sum(other))?;
            }
        }
        Ok(())
    }
}

fn machine() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown processor");
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let control = read("/proc/sys/net/ipv4/tcp_congestion_control");
    let rustc = Command::new("rustc").arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    format!(
        "{}, {cores} cores, Linux {}, TCP with {}, {}",
        model.trim_start_matches([' ', '\t', ':']),
        kernel.trim(),
        control.trim(),
        String::from_utf8_lossy(&rustc).trim()
    )
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

/// Writes three significant digits, or all digits before the point of a larger number.
fn figure(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}
