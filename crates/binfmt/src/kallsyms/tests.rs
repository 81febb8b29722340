pub(crate) mod tables;

use super::*;
use tables::{LAYOUTS, Layout, RODATA, TEXT, build, symbols};

#[test]
fn every_layout_decodes() {
    for layout in LAYOUTS {
        let decoded =
            Symbols::decode(&build(layout), RODATA, TEXT).unwrap_or_else(|e| panic!("{layout:?}: {e}"));
        let mut expected = symbols();
        if layout == Layout::LastPlaceRelative {
            expected.remove(0);
        }
        let found: Vec<_> = decoded.iter().map(|s| (s.kind as u8, s.name.to_owned(), s.address)).collect();
        assert_eq!(found, expected, "{layout:?}");
    }
}

#[test]
fn lookups_go_both_ways() {
    let symbols = Symbols::decode(&build(Layout::Last), RODATA, TEXT).unwrap();
    let start = TEXT.0 + 0x1000 + 5 * 0x40;
    assert_eq!(symbols.address_of("function_5"), Some(start));
    assert_eq!(symbols.at(start + 3), Some(Located { name: "function_5", offset: 3, size: 0x40 }));
    assert_eq!(symbols.named("function_7").count(), 2);
    assert_eq!(symbols.address_of("function"), None);
    // If an address has several names, the first in the table stands for it.
    assert_eq!(symbols.at(TEXT.0).map(|l| l.name), Some("_text"));
    assert_eq!(symbols.at(0), None);
}

#[test]
fn the_text_of_a_guest_compares() {
    let symbols = Symbols::decode(&build(Layout::Last), RODATA, TEXT).unwrap();
    let mut text: String =
        symbols.iter().map(|s| format!("{:016x} {} {}\n", s.address, s.kind, s.name)).collect();
    text.push_str("ffffffffc0000000 t of_a_module\t[module]\n");
    assert!(symbols.differences(&text).is_empty());
    text.push_str("ffffffff81234567 t only_there\n");
    assert_eq!(symbols.differences(&text), ["only in the guest: ffffffff81234567 only_there"]);
}

#[test]
fn damaged_tables_are_errors_or_symbols_but_no_panics() {
    for layout in LAYOUTS {
        let good = build(layout);
        for cut in (0..good.len()).step_by(97) {
            let _ = Symbols::decode(&good[..cut], RODATA, TEXT);
        }
        for at in (0..good.len()).step_by(13) {
            let mut bad = good.clone();
            bad[at] ^= 0x81;
            if let Ok(symbols) = Symbols::decode(&bad, RODATA, TEXT) {
                let _ = (symbols.at(TEXT.0), symbols.address_of("_text"), symbols.iter().count());
            }
        }
    }
    assert!(Symbols::decode(&[], RODATA, TEXT).is_err());
    assert!(Symbols::decode(&[0; 4096], RODATA, TEXT).is_err());
}
