# A line of progress after each job and every minute; `--quiet` and `--quiet progress` switch it off.
progress = faze.base.progress.RunProgress(config["name"], Path(f"results/{config['name']}"))
QUIET = bool({"PROGRESS", "ALL"} & {part.name for part in workflow.output_settings.quiet or ()})
if workflow.is_main_process and not QUIET:
    logger.addHandler(progress)


onstart:
    check_cluster()
    check_gpus()
    warn_of_quota()
    write_configs()
    if not QUIET:
        progress.begin()


onsuccess:
    for page in ("report", "sweep"):
        if Path(f"results/{config['name']}/{page}/index.html").exists():
            print(f"{page}: results/{config['name']}/{page}/index.html")
    if (tracked := Path(f"results/{config['name']}/tracking/tracked.json")).exists():
        print(json.loads(tracked.read_text(encoding="utf-8"))["invitation"])
