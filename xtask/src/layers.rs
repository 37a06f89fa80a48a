//! `cargo xtask layers`: which crate may depend on which, and what `core` must stay free of. The tables below are the
//! architecture; change one together with a decision record.

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

use crate::command;
use crate::repo::{self, TextFile};
use crate::report::{self, Failure, Finding};
use crate::source::{self, Source};

/// A crate and the crates of ours that it may depend on. A name that ends in `*` stands for all that begin so.
struct Layer {
    name: &'static str,
    may_use: &'static [&'static str],
    why: &'static str,
}

const LAYERS: &[Layer] = &[
    Layer { name: "ekiden-core", may_use: &[], why: "the rules know nobody" },
    Layer { name: "ekiden-wire", may_use: &["ekiden-core"], why: "HTTP types speak of tasks and know no store" },
    Layer { name: "ekiden-store", may_use: &["ekiden-core"], why: "the contract stores what core decided" },
    Layer {
        name: BACKENDS,
        may_use: &["ekiden-core", "ekiden-store"],
        why: "a backend knows the contract and no other backend",
    },
    Layer {
        name: "ekiden",
        may_use: &["ekiden-core", "ekiden-wire", "ekiden-store", "ekiden-store-*"],
        why: "the facade is what a Rust user depends on; it knows no server",
    },
    Layer {
        name: "ekiden-server",
        may_use: &["ekiden-core", "ekiden-wire", "ekiden"],
        why: "the server reaches stores through the port only",
    },
    Layer {
        name: "ekiden-cli",
        may_use: &["ekiden-wire", "ekiden", "ekiden-server"],
        why: "the command line reaches stores through the port only",
    },
    Layer {
        name: "ekiden-testkit",
        may_use: &["ekiden-core", "ekiden-wire", "ekiden-store", "ekiden"],
        why: "test rigs know the ports, not the backends under test",
    },
    Layer {
        name: "ekiden-sim",
        may_use: &["ekiden-core", "ekiden-wire", "ekiden-store", "ekiden-store-*", "ekiden", "ekiden-server"],
        why: "the simulation runs the whole system but the command line",
    },
    Layer { name: "xtask", may_use: &[], why: "the door must open when the product does not compile" },
];

const TESTKIT: &str = "ekiden-testkit";

const BACKENDS: &str = "ekiden-store-*";

/// What `core` may depend on outside its tests: data and its formats.
const CORE_DEPENDENCIES: &[&str] = &["serde", "serde_json", "bytes", "uuid", "jiff", "croner", "smallvec", "thiserror"];

/// What must not come in behind those either: runtimes, randomness, the network.
const CORE_NEVER: &[&str] = &["tokio", "rand", "getrandom", "reqwest", "hyper"];

pub(crate) fn run() -> Result<(), Failure> {
    let metadata = MetadataCommand::new().current_dir(repo::root()).no_deps().exec().map_err(|error| {
        Failure::broken("cannot read the workspace", error.to_string(), "mend the manifest that it names")
    })?;
    let edges = edges(&metadata);
    let mut findings = check_edges(&edges);
    if edges.packages.iter().any(|package| package == "ekiden-core") {
        // cargo tree, not cargo metadata: it resolves features for this one crate, as its users get it.
        let arguments =
            ["tree", "--package", "ekiden-core", "--edges", "normal", "--prefix", "none", "--format", "{p}"];
        findings.extend(check_core_closure(&command::output(command::cargo(&arguments))?));
    }
    for file in repo::text_files()?.iter().filter(|file| file.is_rust()) {
        findings.extend(check_source(file));
    }
    report::conclude("layers", findings)
}

/// The packages of the workspace and everything that they ask for.
#[derive(Default)]
struct Edges {
    packages: Vec<String>,
    dependencies: Vec<Edge>,
}

struct Edge {
    from: String,
    to: String,
    kind: DependencyKind,
}

fn edges(metadata: &Metadata) -> Edges {
    let mut edges = Edges::default();
    for package in &metadata.packages {
        edges.packages.push(package.name.to_string());
        edges.dependencies.extend(package.dependencies.iter().map(|dependency| Edge {
            from: package.name.to_string(),
            to: dependency.name.clone(),
            kind: dependency.kind,
        }));
    }
    edges
}

/// A crate may name itself in its dev-dependencies, to switch on a feature of its own for its tests.
fn is_own_test_feature(from: &str, to: &str, kind: DependencyKind) -> bool {
    from == to && kind == DependencyKind::Development
}

fn check_edges(edges: &Edges) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in edges.packages.iter().filter(|package| layer(package).is_none()) {
        let what = format!("{package} has no row in the table of layers");
        findings.push(Finding::new("Cargo.toml", 1, what, "every crate has its place"));
    }
    for Edge { from, to, kind } in &edges.dependencies {
        let manifest = manifest(from);
        if from == "ekiden-core" && *kind != DependencyKind::Development && !CORE_DEPENDENCIES.contains(&to.as_str()) {
            let why = "core is pure: data in, data out";
            findings.push(Finding::new(&manifest, 1, format!("core must not depend on {to}"), why));
        } else if let Some(layer) = layer(from)
            && edges.packages.contains(to)
            && !is_own_test_feature(from, to, *kind)
            && !is_allowed(layer, to, *kind)
        {
            findings.push(Finding::new(&manifest, 1, format!("{from} must not depend on {to}"), layer.why));
        }
    }
    findings
}

fn is_allowed(layer: &Layer, to: &str, kind: DependencyKind) -> bool {
    if to == TESTKIT {
        return kind == DependencyKind::Development;
    }
    // The tests of a backend hold the queue over it to the behaviour suite.
    if layer.name == BACKENDS && to == "ekiden" {
        return kind == DependencyKind::Development;
    }
    layer.may_use.iter().any(|pattern| matches(pattern, to))
}

fn layer(package: &str) -> Option<&'static Layer> {
    LAYERS.iter().find(|layer| matches(layer.name, package))
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => pattern == name,
    }
}

/// Folders are named after packages, without the prefix.
fn manifest(package: &str) -> String {
    match package {
        "xtask" => "xtask/Cargo.toml".to_owned(),
        _ => format!("crates/{}/Cargo.toml", package.strip_prefix("ekiden-").unwrap_or(package)),
    }
}

/// `tree` has a line per package: its name, then its version.
fn check_core_closure(tree: &str) -> Vec<Finding> {
    let names = tree.lines().filter_map(|line| line.split_whitespace().next());
    let mut never: Vec<_> = names.filter(|name| CORE_NEVER.contains(name)).collect();
    never.sort_unstable();
    never.dedup();
    let why = "core has no async, no clock, no randomness and no I/O, and neither has anything below it";
    let finding = |name| Finding::new("crates/core/Cargo.toml", 1, format!("{name} comes in behind core"), why);
    never.into_iter().map(finding).collect()
}

fn check_source(file: &TextFile) -> Vec<Finding> {
    let source = Source::new(&file.text);
    let mut findings = Vec::new();
    if file.path.starts_with("crates/core/src/") {
        for word in ["tokio", "async"] {
            for offset in source::words(&source.code, word) {
                let why = "core has no async; whoever waits is outside";
                findings.push(Finding::new(&file.path, source.line(offset), format!("`{word}` in core"), why));
            }
        }
    }
    if is_library(&file.path) {
        for word in ["println!", "eprintln!", "print!", "eprint!"] {
            for offset in source::words(&source.code, word) {
                let why = "only the command line prints; a library returns or logs";
                findings.push(Finding::new(&file.path, source.line(offset), format!("`{word}`"), why));
            }
        }
    }
    findings
}

/// An example is a program of its own, and prints like one.
fn is_library(path: &str) -> bool {
    let mut parts = path.split('/');
    let (folder, name, below) = (parts.next(), parts.next(), parts.next());
    folder == Some("crates") && name != Some("cli") && below != Some("examples")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(packages: &[&str], from: &str, to: &str, kind: DependencyKind) -> usize {
        let packages = packages.iter().map(|package| (*package).to_owned()).collect();
        let dependencies = vec![Edge { from: from.to_owned(), to: to.to_owned(), kind }];
        check_edges(&Edges { packages, dependencies }).len()
    }

    const EARLY: &[&str] = &["ekiden-core", "ekiden-store", "ekiden-cli", "ekiden-testkit", "xtask"];
    const LATER: &[&str] =
        &["ekiden-core", "ekiden-store", "ekiden-store-local", "ekiden", "ekiden-server", "ekiden-cli"];

    #[test]
    fn edges_lead_down_and_never_up() {
        assert_eq!(found(EARLY, "ekiden-store", "ekiden-core", DependencyKind::Normal), 0);
        assert_eq!(found(LATER, "ekiden", "ekiden-store-local", DependencyKind::Normal), 0);
        assert_eq!(found(EARLY, "ekiden-core", "ekiden-store", DependencyKind::Normal), 1);
        assert_eq!(found(LATER, "ekiden-store", "ekiden-store-local", DependencyKind::Normal), 1);
        assert_eq!(found(LATER, "ekiden-server", "ekiden-store-local", DependencyKind::Normal), 1);
        assert_eq!(found(EARLY, "xtask", "ekiden-core", DependencyKind::Normal), 1);
    }

    #[test]
    fn the_command_line_reaches_stores_through_the_facade_only() {
        assert_eq!(found(LATER, "ekiden-cli", "ekiden", DependencyKind::Normal), 0);
        assert_eq!(found(LATER, "ekiden-cli", "ekiden-store", DependencyKind::Normal), 1);
    }

    #[test]
    fn the_test_kit_is_a_dev_dependency_only() {
        assert_eq!(found(EARLY, "ekiden-store", "ekiden-testkit", DependencyKind::Development), 0);
        assert_eq!(found(EARLY, "ekiden-store", "ekiden-testkit", DependencyKind::Normal), 1);
    }

    #[test]
    fn core_depends_on_its_list_only_but_for_its_tests() {
        assert_eq!(found(EARLY, "ekiden-core", "serde", DependencyKind::Normal), 0);
        assert_eq!(found(EARLY, "ekiden-core", "tokio", DependencyKind::Normal), 1);
        assert_eq!(found(EARLY, "ekiden-core", "proptest", DependencyKind::Development), 0);
    }

    #[test]
    fn a_crate_without_a_place_is_found() {
        assert_eq!(check_edges(&Edges { packages: vec!["ekiden-extra".to_owned()], dependencies: vec![] }).len(), 1);
    }

    #[test]
    fn a_runtime_behind_core_is_found() {
        assert_eq!(check_core_closure("ekiden-core v0.1.0\nserde v1.0.0\n").len(), 0);
        assert_eq!(check_core_closure("ekiden-core v0.1.0\ngetrandom v0.3.0\ngetrandom v0.3.0 (*)\n").len(), 1);
    }

    #[test]
    fn async_in_core_and_printing_in_libraries_are_found() {
        let count = |path, text| check_source(&TextFile::new(path, text)).len();
        assert_eq!(count("crates/core/src/a.rs", "use tokio::sync;\nasync fn a() {}\n"), 2);
        assert_eq!(count("crates/core/src/a.rs", "// no tokio and no async fn here\n"), 0);
        assert_eq!(count("crates/store/src/a.rs", "async fn a() { println!(\"x\"); }\n"), 1);
        assert_eq!(count("crates/cli/src/a.rs", "fn a() { println!(\"x\"); }\n"), 0);
        assert_eq!(count("crates/store/examples/a.rs", "fn main() { println!(\"x\"); }\n"), 0);
    }
}
