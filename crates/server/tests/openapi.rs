//! The description that is checked in is the one that the code gives.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn the_description_is_drawn_from_the_route_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    let drawn = ekiden_server::openapi();
    if std::env::var_os("EKIDEN_BLESS").is_some() {
        std::fs::write(&path, drawn).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == drawn, "openapi.json is not what the code says; EKIDEN_BLESS=1 writes it anew");
}

#[test]
fn every_reference_leads_somewhere_and_every_operation_has_its_own_name() {
    let document: serde_json::Value = serde_json::from_str(ekiden_server::openapi()).unwrap();
    let text = ekiden_server::openapi();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for part in text.split("#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name}");
    }
    let names: BTreeSet<_> = ekiden_server::routes().iter().map(|route| route.operation).collect();
    assert_eq!(names.len(), ekiden_server::routes().len());
}
