//! A file belongs to one process and one key. A start that may not have it says so, and changes nothing.

use std::{fs, path::Path};

use rustix::process::Signal;

use crate::{
    House,
    kit::{Binary, Client, Finished, Upstream},
};

/// Starts one more process on a file, which it must not get.
async fn refused(house: &House, store: &Path) -> Finished {
    let config = house.folder.path().join("config.toml");
    let (config, store) = (config.to_str().unwrap(), store.to_str().unwrap());
    let env: Vec<_> = house.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let arguments = ["serve", "--config", config, "--listen", "127.0.0.1:0", "--store", store];
    let ended = Binary::run(&arguments, &env).await;
    assert!(ended.code == Some(1) && !ended.stderr.contains("listening"), "{ended:?}");
    ended
}

fn bytes(store: &Path) -> [Option<Vec<u8>>; 3] {
    ["store.db", "store.db-wal", "store.db-mark"].map(|name| fs::read(store.with_file_name(name)).ok())
}

#[tokio::test]
async fn a_second_process_on_one_file_ends_whatever_name_it_has_for_it_and_the_first_goes_on() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), "").await;
    let client = Client::connect(&house.url).await;
    let (store, link) = (house.folder.path().join("store.db"), house.folder.path().join("link.db"));
    std::os::unix::fs::symlink(&store, &link).unwrap();
    for name in [&store, &link] {
        let ended = refused(&house, name).await;
        assert!(ended.stderr.contains("another process has it open; stop that process"), "{}", ended.stderr);
    }
    let id = client.create_id("echo").await;
    let task = client.until(&id, "completed").await;
    house.restart().await;
    assert_eq!(client.get(&id).await, task);
}

#[tokio::test]
async fn a_key_is_replaced_while_tasks_stay_and_a_wrong_one_changes_nothing() {
    const FIRST: &str = "key = { env = \"FIRST\" }";
    const SECOND: &str = "key = { env = \"SECOND\" }";
    let upstream = Upstream::json().await;
    let config = |keys: &str| format!("[store]\n{keys}\n[[upstream]]\nurl = \"{}\"\n", upstream.url());
    let env = ["FIRST", "SECOND"].map(|name| (name, format!("the key {name}, which has many characters")));
    let env: Vec<_> = env.iter().map(|(name, key)| (*name, key.as_str())).collect();
    let mut house = House::configured(&config(FIRST), &env).await;
    let store = house.folder.path().join("store.db");
    let client = Client::connect(&house.url).await;
    let id = client.create_id("echo").await;
    let task = client.until(&id, "completed").await;
    house.end(Signal::KILL).await;
    let before = bytes(&store);
    for (keys, why) in [("", "it is sealed; set store.key"), (SECOND, "sealed by another key than store.key")] {
        house.configure(&config(keys));
        let ended = refused(&house, &store).await;
        assert!(ended.stderr.contains(why), "{}", ended.stderr);
        assert!(before == bytes(&store), "a start with {keys:?} has changed the files");
    }
    let replaced = format!("{SECOND}\nold_keys = [{{ env = \"FIRST\" }}]");
    for keys in [&replaced, &replaced, SECOND] {
        house.configure(&config(keys));
        house.start_again().await;
        assert_eq!(client.get(&id).await, task, "with {keys:?}");
        house.end(Signal::KILL).await;
    }
    house.configure(&config(FIRST));
    let ended = refused(&house, &store).await;
    assert!(ended.stderr.contains("sealed by another key"), "{}", ended.stderr);
}
