use super::{Head, Kind, rows};
use crate::effect::{Class, LockKind};
use std::collections::{BTreeMap, BTreeSet};

const KINDS: [Kind; 6] = [Kind::Memory, Kind::Locks, Kind::Dma, Kind::Reads, Kind::Rights, Kind::Roles];

/// The names that have two rows of a kind, with the places of both. The fields of several rows add up.
fn twice<'a>(kind: Kind, tables: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut seen = BTreeMap::new();
    let mut twice = Vec::new();
    for (path, text) in tables {
        for row in rows(kind, path, text).unwrap_or_else(|error| panic!("{error}")) {
            for name in row.names.iter().filter(|_| row.head != Head::Type) {
                let place = format!("{path}, line {}", row.line);
                if let Some(first) = seen.insert(format!("{:?} {name}", row.head), place.clone()) {
                    twice.push(format!("{place}: {name} has a row already: {first}"));
                }
            }
        }
    }
    assert!(!seen.is_empty());
    twice
}

#[test]
fn every_row_of_every_table_is_understood_and_a_function_has_one_row_of_a_kind() {
    for kind in KINDS {
        assert_eq!(twice(kind, kind.tables()), [""; 0]);
    }
    let tables = [("a", "f (): sleeps"), ("b", "\ng, f (): sleeps")];
    assert_eq!(twice(Kind::Locks, tables.into_iter()), ["b, line 2: f has a row already: a, line 1"]);
}

#[test]
fn messages_name_all_classes_and_kinds_of_locks() {
    let (class_words, lock_words) =
        (Class::NAMED.map(|(word, _)| word), LockKind::NAMED.map(|(word, _)| word));
    let classes: BTreeSet<_> = class_words.iter().map(|word| Class::named(word).unwrap() as usize).collect();
    let locks: BTreeSet<_> = lock_words.iter().map(|word| LockKind::named(word).unwrap() as usize).collect();
    assert_eq!((classes.len(), locks.len()), (class_words.len(), lock_words.len()));
    let error = |text: &str| rows(Kind::Memory, "t", text).unwrap_err().what;
    assert_eq!(error("f (): alloc slab siz"), "'siz' after 'alloc' is no size");
    assert_eq!(error("f (size, p): alloc slab siz"), "'siz' after 'alloc' is no size; parameters: size, p");
    assert_eq!(
        error("f (p): free p slabs"),
        format!("'slabs' after 'free' is no class of memory; classes: {}", class_words.join(", "))
    );
}

#[test]
fn every_lock_that_is_taken_can_be_released() {
    let of = |verb: &str| -> BTreeSet<&str> {
        let effects = Kind::Locks.rows().flat_map(|row| row.effects);
        effects.filter(|effect| effect.verb() == verb).filter_map(|effect| effect.word(1)).collect()
    };
    assert_eq!(of("lock"), of("unlock"));
}

/// An entry that is ended gives back the locks that it took. One that a function takes besides what it is called for would be
/// missing, and where the driver had released it, be taken anew.
#[test]
fn every_lock_that_checkers_know_is_noted_for_guarded_drivers() {
    let kinds = ["spin", "rw", "mutex", "rwsem"];
    let takes = |row: &super::Row<'_>| {
        let known = |kind: Option<&str>| kind.is_some_and(|kind| kinds.contains(&kind));
        row.effects.iter().any(|effect| effect.verb() == "lock" && known(effect.word(1)))
    };
    let takers: BTreeSet<_> = Kind::Locks.rows().filter(takes).flat_map(|row| row.names).collect();
    assert!(takers.contains("refcount_dec_and_mutex_lock"));
    let notes = |row: &super::Row<'_>| {
        let custom = |word: &str| word.ends_with("_taken");
        row.effects.iter().any(|effect| effect.verb() == "custom" && effect.word(1).is_some_and(custom))
    };
    let rows = Kind::Rights.rows().filter(|row| row.head == Head::Function && !notes(row));
    let missing: Vec<_> = rows.flat_map(|row| row.names).filter(|name| takers.contains(name)).collect();
    assert_eq!(missing, [""; 0]);
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
        "t, line 1: 'b' after 'free' is no pointer: PARAM, page(PARAM) or page(PARAM,OFFSET); parameters: a"
    );
    assert_eq!(error(Kind::Memory, "f (a): free a"), "t, line 1: 2 words follow 'free', and not 1");
    assert_eq!(
        error(Kind::Memory, "f (a): alloc slab a zero=b"),
        "t, line 1: 'zero=b' does not follow 'alloc'"
    );
    assert_eq!(
        error(Kind::Locks, "f (a): lock spin a.b"),
        "t, line 1: 'a.b' after 'lock' is no key: PARAM, PARAM.struct.member or global(NAME); parameters: a"
    );
    assert!(error(Kind::Locks, "f (a): acquire global(moon)").starts_with(
        "t, line 1: 'global(moon)' after 'acquire' is no global that is known; globals: rtnl, "
    ));
    assert_eq!(
        error(Kind::Dma, "f (a): sync a a a a moon"),
        "t, line 1: 'moon' after 'sync' is no word that may stand here; words: cpu, device"
    );
    assert_eq!(
        error(Kind::Reads, "f (a): format b"),
        "t, line 1: 'b' after 'format' is no parameter; parameters: a"
    );
    assert_eq!(error(Kind::Locks, "f (a): sleeps ;"), "t, line 1: an effect is missing");
}

#[test]
fn a_wrong_row_of_rights_is_named_with_what_was_expected() {
    let error = |text: &str| rows(Kind::Rights, "rights.txt", text).unwrap_err().to_string();
    assert!(error("# x\nf (a): sell a").starts_with("rights.txt, line 2: 'sell' is no effect of rights.txt"));
    let place = "rights.txt, line 1: ";
    for (text, what) in [
        ("f: nothing", "a row is 'FUNCTION, … (PARAMETER, …): EFFECT ; …'"),
        ("f (a): grant a", "2 words follow 'grant', and not 1"),
        ("f (a): grant b 8", "'b' after 'grant' is no value; parameters: a"),
        ("f (a): grant a 8 if b", "'b' is no condition: always, result, ok, positive, true or PARAM"),
        ("f (result): nothing", "no parameter is called 'result', which means what the function returns"),
        ("entry send (a): nothing", "an entry is a member: STRUCT.MEMBER"),
        ("entry ops.send (a): fail 0x10", "'0x10' after 'fail' is no decimal number"),
        ("type frame", "such a row is 'type STRUCT: FIELD, …' or 'states TYPE: STATE, …'"),
    ] {
        assert_eq!(error(text), format!("{place}{what}"), "{text}");
    }
    let memory = rows(Kind::Memory, "t", "type a: b").unwrap_err().to_string();
    assert!(memory.starts_with("t, line 1: a row is"), "{memory}");
}
