//! The one door to everything a developer or CI does here: `cargo xtask setup | test | tidy | layers | bench`.
//! This file reads the arguments and picks the exit code; each subcommand is a module of its own.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a developer's command talks to its terminal")]

mod bench;
mod boto3;
mod command;
mod dynamodb_local;
mod fuzzer;
mod layers;
mod repo;
mod report;
mod rigs;
mod setup;
mod source;
mod test;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use report::Failure;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "The one door to building, testing and measuring Ekiden"
)]
struct Arguments {
    #[command(subcommand)]
    door: Door,
}

#[derive(Subcommand)]
enum Door {
    /// Check what the tests need and install what is missing
    Setup,
    /// Run everything CI runs; with a FILTER only the tests whose names contain it
    Test {
        /// Run only the randomized tests, with this seed (sets EKIDEN_SEED)
        #[arg(long, value_name = "SEED")]
        replay: Option<String>,
        /// Let the fault rigs run for many minutes (sets EKIDEN_LONG) and keep their results in bench/results/rigs.txt
        #[arg(long)]
        long: bool,
        /// Run only the tests of the DynamoDB store, on Amazon's DynamoDB Local, which is installed below target
        #[arg(long, conflicts_with_all = ["replay", "long"])]
        dynamodb_local: bool,
        /// Parts of test names, handed to nextest
        #[arg(value_name = "FILTER")]
        filters: Vec<String>,
    },
    /// Check the house style, the documents and the requirements table
    Tidy,
    /// Check which crate may depend on which, and what core must stay free of
    Layers,
    /// List the benchmarks, or run one
    Bench {
        /// The benchmark to run; without it they are listed
        name: Option<String>,
        /// A short run that shows it works; its figures mean little
        #[arg(long)]
        quick: bool,
        /// Write the figures to this file as well
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().door {
        Door::Setup => setup::run(),
        Door::Test { dynamodb_local: true, filters, .. } => test::run_on_dynamodb_local(&filters),
        Door::Test { replay, long, filters, .. } => {
            let length = if long { test::Length::Long } else { test::Length::Short };
            test::run(replay.as_deref(), length, &filters)
        }
        Door::Tidy => tidy::run(),
        Door::Layers => layers::run(),
        Door::Bench { name, quick, json } => bench::run(name.as_deref(), quick, json.as_deref()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            match failure {
                Failure::Nothing(_) => ExitCode::from(2),
                Failure::Broken { .. } | Failure::Missing { .. } => ExitCode::FAILURE,
            }
        }
    }
}
