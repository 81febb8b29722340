use super::{Kind, rows};
use std::collections::BTreeSet;

const KINDS: [Kind; 3] = [Kind::Memory, Kind::Locks, Kind::Dma];

#[test]
fn every_row_of_every_table_is_understood_and_a_function_has_one_row_of_a_kind() {
    for kind in KINDS {
        let mut seen = BTreeSet::new();
        for (path, text) in kind.tables() {
            for row in rows(kind, path, text).unwrap_or_else(|error| panic!("{error}")) {
                for name in row.names {
                    assert!(seen.insert(name), "{path}: {name} has two rows in {}", kind.file());
                }
            }
        }
        assert!(!seen.is_empty());
    }
}

#[test]
fn every_lock_that_is_taken_can_be_released() {
    let of = |verb: &str| -> BTreeSet<&str> {
        let effects = Kind::Locks.rows().flat_map(|row| row.effects);
        effects.filter(|words| words[0] == verb).map(|words| words[1]).collect()
    };
    assert_eq!(of("lock"), of("unlock"));
}

#[test]
fn a_wrong_row_is_named_with_what_was_expected() {
    let error = |kind, text: &str| rows(kind, "t", text).unwrap_err().to_string();
    let form = "t, line 1: a row is 'FUNCTION, … (PARAMETER, …): EFFECT ; …'";
    assert_eq!(error(Kind::Memory, "kfree: nothing"), form);
    assert!(
        error(Kind::Memory, "# x\n\nf (a): lock spin a")
            .starts_with("t, line 3: 'lock' is no effect of memory.txt; there are alloc, ")
    );
    assert_eq!(
        error(Kind::Memory, "f (a): free b slab"),
        "t, line 1: 'b' after 'free' is no pointer: PARAM, page(PARAM) or page(PARAM,OFFSET)"
    );
    assert_eq!(error(Kind::Memory, "f (a): free a"), "t, line 1: 2 words follow 'free', and not 1");
    assert_eq!(
        error(Kind::Memory, "f (a): alloc slab a zero=b"),
        "t, line 1: 'zero=b' does not follow 'alloc'"
    );
    assert_eq!(
        error(Kind::Locks, "f (a): lock spin a.b"),
        "t, line 1: 'a.b' after 'lock' is no key: PARAM, PARAM.struct.member or global(NAME)"
    );
    assert_eq!(
        error(Kind::Locks, "f (a): acquire global(moon)"),
        "t, line 1: 'global(moon)' after 'acquire' is no global that is known"
    );
    assert_eq!(
        error(Kind::Dma, "f (a): sync a a a a moon"),
        "t, line 1: 'moon' after 'sync' is no word that may stand here"
    );
    assert_eq!(error(Kind::Locks, "f (a): sleeps ;"), "t, line 1: an effect is missing");
}
