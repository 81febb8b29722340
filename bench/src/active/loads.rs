//! Traffic: a device that the stock and the active driver have by turns.

use super::Arguments;
use super::guest::Guest;
use super::table::{Row, Table};
use guardrail_vm::packages::Packages;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;

const SCRIPT: &str = include_str!("traffic.sh");
const PROGRAMS: [(&str, &str); 2] =
    [("load", include_str!("load.c")), ("pcm", include_str!("../../../tests/fixtures/active/pcm.c"))];
/// Percent of each load that is enough to show that it runs.
const TRY_PERCENT: u32 = 1;

/// A device with two drivers.
#[derive(Debug)]
pub struct Load {
    /// The kind of device: the name for `--only`, and for the script.
    pub class: &'static str,
    /// The stock driver.
    pub stock: &'static str,
    /// The active driver.
    pub active: &'static str,
    /// The module with the wrapper of its class.
    pub wrapper: &'static str,
    /// QEMU's name of the device.
    pub device: &'static str,
}

/// All of them.
pub const LOADS: [Load; 3] = [
    Load { class: "disk", stock: "ahci", active: "active_ahci", wrapper: "active_ata", device: "ahci" },
    Load {
        class: "network",
        stock: "8139cp",
        active: "active_8139cp",
        wrapper: "active_net",
        device: "rtl8139",
    },
    Load {
        class: "sound",
        stock: "snd_ens1370",
        active: "active_es1370",
        wrapper: "active_sound",
        device: "ES1370",
    },
];

impl Load {
    /// Measures all loads of the device.
    pub fn measure(
        &self,
        packages: &Packages,
        arguments: &Arguments,
        modules: &[PathBuf],
    ) -> Result<Table, String> {
        let failed = |error: std::io::Error| format!("no port for packets that nobody reads: {error}");
        let sink = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let port = sink.local_addr().map_err(failed)?.port();
        let percent = if arguments.only_try { TRY_PERCENT } else { 100 };
        let variables = [
            ("KIND", self.class.to_owned()),
            ("STOCK", self.stock.to_owned()),
            ("ACTIVE", self.active.to_owned()),
            ("WRAPPER", self.wrapper.to_owned()),
            ("PAIRS", arguments.pairs().to_string()),
            ("PERCENT", percent.to_string()),
            ("SINK", port.to_string()),
        ];
        let guest = Guest {
            driver: self.stock,
            device: self.device,
            script: SCRIPT,
            variables: variables.map(|(name, value)| (name.to_owned(), value)).into(),
            programs: &PROGRAMS,
        };
        let rows = rows(&guest.run(packages, arguments, modules)?);
        let pairs = arguments.pairs() as usize;
        if rows.is_empty() || rows.iter().any(|row| row.bases.len() != pairs || row.figures.len() != pairs) {
            return Err("not all loads were measured in each pair".to_owned());
        }
        Ok(Table {
            head: format!("{} and {}, {}, {pairs} pairs", self.stock, self.active, arguments.guest()),
            base: "stock",
            figure: "active",
            unit: "us",
            rows,
        })
    }
}

/// Reads what the script wrote after the first pair: `load: stock|active measured WHAT NUMBER`.
fn rows(console: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let begin = console.find("load: begin").unwrap_or(console.len());
    for line in console[begin..].lines() {
        let Some((_, line)) = line.split_once("load: ") else { continue };
        let words: Vec<&str> = line.split_whitespace().collect();
        let [driver, "measured", what, number] = words[..] else { continue };
        let Ok(number) = number.parse::<f64>() else { continue };
        // Underruns are counted, not timed.
        let number = if what == "underruns" { number } else { number / 1e3 };
        let row = Row::named(&mut rows, what);
        if driver == "stock" { &mut row.bases } else { &mut row.figures }.push(number);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_before_the_first_pair_is_left_out() {
        let rows = rows(
            "load: stock measured ping 1000\nload: begin\n[ 1.0] load: active measured ping 3000\nload: stock measured ping 2000\nload: x\n",
        );
        assert_eq!((rows.len(), &rows[0].bases[..], &rows[0].figures[..]), (1, &[2.0][..], &[3.0][..]));
    }
}
