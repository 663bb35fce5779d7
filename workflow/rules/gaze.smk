# DT-ED: codes, few-shot adaptation, redirection, evaluation.
STORES = [f"{ROOT}/data/{dataset}.h5" for dataset in DATASETS]
LEARNERS = settings.fewshot.learners
FIRST_FOLD = FOLDS[0] if FOLDS else ""  # its network is used for redirection and walks
ERRORS = [f"{RUN}/fewshot/{name}_errors.parquet" for name in LEARNERS]


use rule stage as encode with:
    input:
        checkpoint=f"{FOLD}/checkpoint.pt",
        data=STORES,
    output:
        out=[f"{FOLD}/codes/{dataset}.h5" for dataset in DATASETS],
    threads: max(1, CORES // 2)
    params:
        **stage_params("encode"),


use rule stage as meta_train with:
    input:
        codes=f"{FOLD}/codes/{TRAINING_SET}.h5",
    output:
        out=[f"{FOLD}/fewshot/{learner}.pt" for learner in LEARNERS],
    params:
        **stage_params("meta_train"),


use rule stage as adapt with:
    input:
        learner_file=rules.meta_train.output.out,
        codes=rules.encode.output.out,
    output:
        out=[f"{FOLD}/fewshot/{learner}_errors.parquet" for learner in LEARNERS],
    threads: max(1, CORES // 2)
    params:
        **stage_params("adapt"),


if FOLDS:
    JOINED = ["checkpoint.pt", "run.jsonl", *(f"codes/{dataset}.h5" for dataset in DATASETS)]
    JOINED += [f"fewshot/{learner}_errors.parquet" for learner in LEARNERS]

    use rule stage as join with:
        input:
            after=expand("{run}{fold}/{file}", run=RUN, fold=FOLDS, file=JOINED),
        output:
            after=[f"{RUN}/{file}" for file in JOINED],
        params:
            **stage_params("join", f"--run={RUN}", "--num-folds", str(len(FOLDS)), "--files", *JOINED),


# Networks of other projects (`given`): their own patches, estimates, and learners that need no codes.
if GIVEN:
    GIVEN_LEARNERS = learners(settings, GIVEN[0])

    use rule preprocess as estimate with:
        output:
            out=f"{FOLD}/codes/{{dataset}}.h5",
        wildcard_constraints:
            tier="|".join(GIVEN),
        params:
            **stage_params("estimate"),

    use rule meta_train as meta_train_given with:
        output:
            out=[f"{FOLD}/fewshot/{learner}.pt" for learner in GIVEN_LEARNERS],
        wildcard_constraints:
            tier="|".join(GIVEN),

    use rule adapt as adapt_given with:
        input:
            learner_file=rules.meta_train_given.output.out,
            codes=[f"{FOLD}/codes/{dataset}.h5" for dataset in DATASETS],
        output:
            out=[f"{FOLD}/fewshot/{learner}_errors.parquet" for learner in GIVEN_LEARNERS],
        wildcard_constraints:
            tier="|".join(GIVEN),


# The estimator that evaluates redirected strips, trained once for all tiers.
use rule stage as estimator with:
    input:
        data=TRAINED_ON,
        evaluated=[store for store in STORES if store not in TRAINED_ON],
    output:
        out=f"{ROOT}/estimator/estimator.pt",
        errors=f"{ROOT}/estimator/errors.json",
    threads: settings.train.threads
    params:
        **stage_params("estimator"),


use rule stage as redirect with:
    input:
        checkpoint=f"{RUN}{FIRST_FOLD}/checkpoint.pt",
        estimator=rules.estimator.output.out,
        data=STORES,
    output:
        out=f"{RUN}/redirected_pairs.parquet",
    threads: max(1, CORES // 2)
    params:
        **stage_params("redirect"),


# The first run's redirected strips determine which people are shown, so every run shows the same people.
use rule stage as walk with:
    input:
        checkpoint=f"{RUN}{FIRST_FOLD}/checkpoint.pt",
        estimator=rules.estimator.output.out,
        pairs=f"{ROOT}/{TIERS[0]}/seed{SEEDS[0]}/redirected_pairs.parquet",
        data=STORES,
    output:
        out=report(
            directory(f"{RUN}/walks"),
            patterns=["{walk}.mp4", "{walk}.png", "{walk}.csv"],
            category="Latent walks",
            labels={"tier": "{tier}", "seed": "{seed}", "walk": "{walk}"},
            caption="../report/walk.rst",
        ),
    threads: max(1, CORES // 2)
    params:
        **stage_params("walk"),


use rule stage as evaluate with:
    input:
        after=[
            every_run([f"{RUN}/redirected_pairs.parquet", *ERRORS, f"{RUN}/run.jsonl"]),
            expand(rules.adapt_given.output.out, tier=GIVEN, seed=SEEDS[0], fold="") if GIVEN else [],
            rules.estimator.output.errors,
            f"{ROOT}/benchmark/benchmark.json",
            PROOFS,
        ],
    output:
        out=directory(f"{ROOT}/evaluation"),
    params:
        **stage_params("evaluate", "--results", ROOT),


use rule stage as report with:
    input:
        after=[rules.evaluate.output, every_run(f"{RUN}/walks", with_controls=False)],
    output:
        out=report(
            directory(f"{ROOT}/report"), patterns=["{page}.html"], category="Ablation", caption="../report/report.rst"
        ),
    params:
        **stage_params("report", "--results", ROOT),
