//! Charts as SVG: what was measured against the number of cores.

use super::compare::{Row, describe, of_linear};
use heist_sim::sim::{Measured, Plan, Policy, Workload};
use std::fmt::Write;

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 58.0;
const TOP: f64 = 34.0;
const COLUMN: f64 = WIDTH + LEFT + 24.0;
const LINE: f64 = HEIGHT + TOP + 40.0;
const COLUMNS: usize = 3;
const HEAD: f64 = 64.0;

/// One colour for each policy, readable also by those who do not see red.
const COLOURS: [&str; 5] = ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9"];
const DASHES: [&str; 3] = ["", "6 3", "2 3"];

/// What is drawn against the number of cores.
struct Panel {
    title: &'static str,
    /// Values, one for each line of a policy.
    lines: usize,
    value: fn(&Plan, &Measured, &[&Row]) -> [f64; 3],
    logarithmic: bool,
}

const PANELS: [Panel; 7] = [
    Panel {
        title: "tasks in a µs",
        lines: 1,
        value: |_, m, _| [m.throughput, 0.0, 0.0],
        logarithmic: true,
    },
    Panel {
        title: "share of linear",
        lines: 1,
        value: |plan, m, rows| [of_linear(plan, m, rows), 0.0, 0.0],
        logarithmic: false,
    },
    Panel {
        title: "wake latency in µs: p50, p99 (dashed), p99.9 (dotted)",
        lines: 3,
        value: |_, m, _| m.latency.map(|nanos| nanos / 1e3),
        logarithmic: true,
    },
    Panel {
        title: "victims looked at in a search",
        lines: 1,
        value: |_, m, _| [m.probes_per_search, 0.0, 0.0],
        logarithmic: false,
    },
    Panel {
        title: "per task: cache lines moved, victims looked at (dashed)",
        lines: 2,
        value: |_, m, _| [m.transfers, m.probes, 0.0],
        logarithmic: false,
    },
    Panel {
        title: "ns of waiting for locks, per task",
        lines: 1,
        value: |_, m, _| [m.lock_wait, 0.0, 0.0],
        logarithmic: false,
    },
    Panel {
        title: "share of the cores' time spent searching",
        lines: 1,
        value: |_, m, _| [m.searching, 0.0, 0.0],
        logarithmic: false,
    },
];

/// All panels of a workload.
pub(super) fn draw(workload: Workload, topology: &str, rows: &[&Row]) -> String {
    let (width, height) =
        (COLUMN * COLUMNS as f64 + 16.0, HEAD + LINE * PANELS.len().div_ceil(COLUMNS) as f64);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"16\" y=\"24\" font-size=\"16\">{workload}: {} ({topology})</text>\n",
        describe(workload)
    );
    let policies = policies(rows);
    for (i, policy) in policies.iter().enumerate() {
        let (x, colour) = (16.0 + 120.0 * i as f64, COLOURS[i % COLOURS.len()]);
        put(
            &mut out,
            format_args!(
                "<path d=\"M{x} 44h22\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <text x=\"{}\" y=\"48\">{policy}</text>\n",
                x + 28.0
            ),
        );
    }
    for (i, panel) in PANELS.iter().enumerate() {
        let (column, line) = ((i % COLUMNS) as f64, (i / COLUMNS) as f64);
        let place = (LEFT + COLUMN * column, HEAD + TOP + LINE * line);
        panel.draw(&mut out, place, &policies, rows);
    }
    out.push_str("</svg>\n");
    out
}

fn policies(rows: &[&Row]) -> Vec<Policy> {
    let mut policies = Vec::new();
    for (plan, _) in rows {
        if !policies.contains(&plan.policy()) {
            policies.push(plan.policy());
        }
    }
    policies
}

impl Panel {
    fn draw(&self, out: &mut String, (x, y): (f64, f64), policies: &[Policy], rows: &[&Row]) {
        let cores: Vec<f64> = rows.iter().map(|(plan, _)| plan.cores() as f64).collect();
        let across = Axis::new(&cores, true, (x, x + WIDTH));
        let values: Vec<f64> = rows
            .iter()
            .flat_map(|(plan, m)| (self.value)(plan, m, rows).into_iter().take(self.lines))
            .collect();
        let up = Axis::new(&values, self.logarithmic, (y + HEIGHT, y));
        put(
            out,
            format_args!(
                "<text x=\"{x}\" y=\"{}\" font-size=\"12\">{}</text>\n\
             <rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" \
             stroke=\"#999\"/>\n",
                y - 10.0,
                self.title
            ),
        );
        let mut ticks = cores;
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        for tick in ticks {
            let at = across.place(tick);
            put(
                out,
                format_args!(
                    "<text x=\"{at}\" y=\"{}\" text-anchor=\"middle\">{tick}</text>\n",
                    y + HEIGHT + 16.0
                ),
            );
        }
        for tick in up.ticks() {
            let at = up.place(tick);
            put(
                out,
                format_args!(
                    "<path d=\"M{x} {at}h{WIDTH}\" stroke=\"#e5e5e5\"/>\
                 <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n",
                    x - 6.0,
                    at + 4.0,
                    number(tick)
                ),
            );
        }
        for (i, policy) in policies.iter().enumerate() {
            for (line, dash) in DASHES.iter().enumerate().take(self.lines) {
                let points: Vec<(f64, f64)> = rows
                    .iter()
                    .filter(|(plan, _)| plan.policy() == *policy)
                    .map(|(plan, m)| {
                        let value = (self.value)(plan, m, rows)[line];
                        (across.place(plan.cores() as f64), up.place(value))
                    })
                    .collect();
                draw_line(out, &points, COLOURS[i % COLOURS.len()], dash);
            }
        }
    }
}

fn draw_line(out: &mut String, points: &[(f64, f64)], colour: &str, dash: &str) {
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    put(
        out,
        format_args!(
            "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" \
         stroke-dasharray=\"{dash}\"/>\n",
            path.join("L")
        ),
    );
    for (x, y) in points {
        put(
            out,
            format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>\n"),
        );
    }
}

/// Writing to a string does not fail.
fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

fn number(value: f64) -> String {
    if value != 0.0 && value.abs() < 0.01 {
        format!("{value:.0e}")
    } else if value.abs() < 10.0 && value.fract() != 0.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.0}")
    }
}

/// From values to places on the paper.
struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
    paper: (f64, f64),
}

impl Axis {
    /// Wide enough for all values: from zero, or, if logarithmic, from the
    /// smallest one that is not zero.
    fn new(values: &[f64], logarithmic: bool, paper: (f64, f64)) -> Axis {
        let high = values.iter().copied().fold(0.0, f64::max);
        let positive = values.iter().copied().filter(|value| *value > 0.0);
        let low = if logarithmic { positive.fold(f64::INFINITY, f64::min) } else { 0.0 };
        let high = if high > 0.0 { high } else { 1.0 };
        let low = if low.is_finite() { low } else { high / 10.0 };
        // A single value gets some room around it.
        let low = if low < high { low } else { high / 2.0 };
        Axis { low, high, logarithmic, paper }
    }

    fn place(&self, value: f64) -> f64 {
        let part = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.paper.0 + part * (self.paper.1 - self.paper.0)
    }

    fn ticks(&self) -> Vec<f64> {
        const TICKS: usize = 5;
        let part = |i: usize| i as f64 / (TICKS - 1) as f64;
        let at = |i| match self.logarithmic {
            true => self.low * (self.high / self.low).powf(part(i)),
            false => self.low + (self.high - self.low) * part(i),
        };
        (0..TICKS).map(at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_goes_from_end_to_end() {
        let linear = Axis::new(&[0.5, 4.0], false, (100.0, 0.0));
        assert_eq!((linear.place(0.0), linear.place(4.0)), (100.0, 0.0));
        let wide = Axis::new(&[2.0, 512.0], true, (0.0, 100.0));
        assert_eq!((wide.place(2.0), wide.place(512.0)), (0.0, 100.0));
        assert!((wide.place(32.0) - 50.0).abs() < 1e-9);
        assert!(Axis::new(&[0.0, 0.0], true, (0.0, 1.0)).place(0.0).is_finite());
    }

    #[test]
    fn every_policy_has_its_line_in_every_panel() {
        let row = |cores, policy| {
            let plan = Plan::new(Workload::Tree, (cores, "flat"), policy, 1, 100).unwrap();
            (plan, Measured { throughput: cores as f64, ..Measured::default() })
        };
        let rows: Vec<Row> = [2, 64]
            .into_iter()
            .flat_map(|cores| [row(cores, Policy::Go), row(cores, Policy::Heist)])
            .collect();
        let svg = draw(Workload::Tree, "flat", &rows.iter().collect::<Vec<_>>());
        let lines: usize = PANELS.iter().map(|panel| panel.lines).sum();
        assert_eq!(svg.matches("fill=\"none\" stroke=\"#").count(), 2 * lines + PANELS.len());
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
