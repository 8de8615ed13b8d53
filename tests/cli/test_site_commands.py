"""``fedvine join --policy`` and ``--dry-run``, ``fedvine account``, and what ``join`` says."""

import json
import tomllib

import pytest
import shop
import tomlkit
from federation import labelled

from fedvine import testing
from fedvine.cli import main as cli
from fedvine.data.spec import Data
from fedvine.federation import confine, erasures, launch
from fedvine.federation.account import FOLDER, Account
from fedvine.federation.policy import Policy
from fedvine.federation.site_file import MEMORY, read_site
from fedvine.living.sites import grown_at_a_site

COLUMNS = ["--src", "user", "--dst", "item", "--time", "at"]


@pytest.fixture
def kit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shop.write(tmp_path)
    (tmp_path / "kit" / "startup").mkdir(parents=True)
    (tmp_path / "kit" / "fedvine.json").write_text('{"format": 1, "name": "ada"}')
    return tmp_path / "kit"


def fedvine(capsys, *arguments):
    """Exit code, stdout and stderr."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main([str(a) for a in arguments])
    return (ended.value.code or 0, *capsys.readouterr())


def experiment(folder, method, **more):
    file = folder / "experiment.toml"
    lines = {"stages": '"100s"', "travelled": "false", **more}
    file.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()) +
                    "[protocol]\n" + "".join(
                        f"{key} = {value}\n" for key, value in
                        testing.PROTOCOL.model_dump(include={"negatives", "positives"}).items())
                    + f"[method]\n{method}\n")
    return file


def test_a_policy_is_written_once_shown_and_kept(capsys, kit):
    code, said, told = fedvine(capsys, "join", kit, "--data", "shop.csv", *COLUMNS, "--policy")
    assert (code, told) == (0, "") and "[policy.methods.fedlink_private]" in said
    assert said.splitlines()[-1].startswith("Nothing was sent. Change ")
    assert read_site(kit).policy == Policy() and read_site(kit).data.src == "user"
    changed = (kit / "site.toml").read_text().replace("grain = 10 ", "grain = 25 ").replace(
        "# epsilon = 8.0", "epsilon = 3.0")
    (kit / "site.toml").write_text(changed)
    key = kit.parent / "key.txt"
    key.write_text("a key of the sites alone")
    code, said, _ = fedvine(capsys, "join", kit, "--data", "shop.csv", *COLUMNS, "--secret", key,
                            "--policy")
    found = read_site(kit)
    assert (found.policy.grain, found.policy.epsilon) == (25, 3.0)
    assert "# One table a method" in (kit / "site.toml").read_text()       # its comments too
    assert found.secret == "a key of the sites alone" and found.secret not in said
    assert tomllib.loads((kit / "site.toml").read_text())["policy"]["grain"] == 25


def test_what_is_not_said_again_stays_as_it_was(capsys, kit):
    """The shared key above all: without it names would travel under one that everybody knows."""
    key = kit.parent / "key.txt"
    key.write_text("a key of the sites alone")
    (kit.parent / "other.csv").write_text((kit.parent / "shop.csv").read_text())
    fedvine(capsys, "join", kit, "--data", "shop.csv", *COLUMNS, "--policy", "--threads", "2",
            "--open-classes")
    code, _, _ = fedvine(capsys, "join", kit, "--secret", key, "--policy")
    assert code == 0 and read_site(kit).data.source.endswith("shop.csv")
    code, _, _ = fedvine(capsys, "join", kit, "--data", "other.csv", *COLUMNS, "--policy")
    found = read_site(kit)
    assert code == 0 and found.data.source.endswith("other.csv") and found.threads == 2
    assert found.secret == "a key of the sites alone" and found.policy == Policy()
    assert not found.open_classes                           # said of the other table
    code, _, told = fedvine(capsys, "join", kit, "--src", "user", "--policy")
    assert code == 2 and "--src belongs to --data" in told


def test_join_takes_the_options_by_which_a_table_is_read(capsys, kit):
    rows = (kit.parent / "shop.csv").read_text().splitlines()
    rows = [f"{row},{'number' if i == 0 else f's-{i}'}" for i, row in enumerate(rows)]
    rows[5] = rows[5].replace(rows[5].split(",")[rows[0].split(",").index("user")], "NA", 1)
    (kit.parent / "shop.csv").write_text("\n".join(rows) + "\n")
    data = ["join", kit, "--policy", "--data", "shop.csv", *COLUMNS]
    code, _, told = fedvine(capsys, *data, "--missing", "NA,unknown", "--key", "number")
    assert code == 2 and 'is empty where "number" is "s-5"' in told
    assert fedvine(capsys, *data, "--key", "number", "--sure", "--bipartite", "no")[0] == 0
    found = read_site(kit).data
    assert (found.key, found.sure, found.bipartite) == ("number", True, False)
    code, _, told = fedvine(capsys, "join", kit, "--time-format", "%d", "--policy")
    assert code == 2 and "--time-format belongs to --data" in told


@pytest.mark.slow
def test_a_dry_run_of_another_table_goes_by_the_policy_and_the_key_of_the_kit(capsys, kit):
    key = kit.parent / "key.txt"
    key.write_text("a key of the sites alone")
    data = ["--data", "shop.csv", *COLUMNS]
    file = experiment(kit.parent, 'name = "popularity"')
    warned = "names travel under a key that everybody knows"
    assert warned in fedvine(capsys, "join", kit, *data, "--dry-run", file)[1]
    fedvine(capsys, "join", kit, *data, "--secret", key, "--policy")
    _, said, _ = fedvine(capsys, "join", kit, *data, "--dry-run", file)
    assert "does not allow the method popularity" in said and warned not in said


def test_a_policy_that_cannot_be_read_names_the_file_and_the_key(capsys, kit):
    fedvine(capsys, "join", kit, "--data", "shop.csv", *COLUMNS, "--policy")
    before = (kit / "site.toml").read_text().replace("grain = 10", "grian = 10")
    (kit / "site.toml").write_text(before)
    for more in ([], ["--data", "shop.csv", *COLUMNS], ["--policy"]):
        code, _, told = fedvine(capsys, "join", kit, *more)
        assert code == 2 and "site.toml" in told and "did you mean" in told
        assert (kit / "site.toml").read_text() == before


def test_join_says_the_policy_before_anything_is_sent_and_refusals_when_they_happen(
        kit, monkeypatch):
    said, looks = [], []
    account = Account(kit / MEMORY / FOLDER)
    line = {"run": "a", "function": "agree", "kind": "refused", "in": 1, "out": 1}
    account.add(**line, why="of yesterday")

    def look(self):
        looks.append(list(said))
        if len(looks) > 4:
            raise KeyboardInterrupt
        account.add(**line, why="no\x1b[2J" if len(looks) < 4 else "never")

    monkeypatch.setattr(launch.Kept, "look", look)
    monkeypatch.setattr(launch.time, "sleep", lambda seconds: None)
    launch.join(kit, said.append, {"policy": {"methods": {"edgebank": {}}}})
    assert looks[0][:2] == ["policy: methods edgebank", (
        "policy: times at which users were first seen stay here; counts leave as multiples of 10; "
        "stages of edges last 1h or more; at most 100 MB a round")]
    assert [s for s in said if s.startswith("refused")] == ["refused: no?[2J", "refused: never"]
    assert "joining as ada; Ctrl-C leaves" in looks[0]   # not the name of the folder
    (kit / "site.toml").write_text("")
    looks.clear()
    launch.join(kit, said.append)
    assert any("this site has no policy" in s for s in looks[0])


@pytest.mark.slow
@pytest.mark.parametrize(("method", "kinds"), [
    ('name = "edgebank"', {"observe": "nothing", "predict": "scores"}),
    ('name = "fedlink"\nrounds = 1\nwidth = 4\ncapacity = 20', {"train": "for training"})])
def test_a_dry_run_shows_what_would_leave_and_leaves_nothing(capsys, kit, method, kinds):
    file = experiment(kit.parent, method)
    before = sorted(p for p in kit.parent.rglob("*"))
    code, said, told = fedvine(capsys, "join", kit, "--data", "shop.csv", *COLUMNS,
                               "--dry-run", file)
    assert (code, told) == (0, "") and sorted(p for p in kit.parent.rglob("*")) == before
    lines = [" ".join(line.split()) for line in said.splitlines()]
    for name, kind in {"agree": "nothing", "facts": "counts and times", "known": "counts",
                       "open": "nothing", **kinds}.items():
        assert any(line.startswith(f"{name} {kind} ") for line in lines), said
    assert "the number of edges at or before each stage's end" in said
    assert "mean scores over them; the answers stay here" in " ".join(said.split())
    assert "Nothing was sent" in said and "would end here" not in said


@pytest.mark.slow
def test_a_dry_run_with_names_in_two_halves(capsys, kit):
    pytest.importorskip("voprf", reason="the extra names is not installed")
    file = experiment(kit.parent, 'name = "fedlink_plus"\nrounds = 1\nshare = "rows"',
                      names='"oprf"')
    code, said, told = fedvine(capsys, "join", kit, "--data", "shop.csv", *COLUMNS,
                               "--dry-run", file)
    assert (code, told) == (0, "") and "would end here" not in said
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert any(line.startswith("blind blinded names ") for line in lines), said


def test_a_dry_run_shows_what_the_policy_refuses(capsys, kit):
    fedvine(capsys, "join", kit, "--data", "shop.csv", *COLUMNS, "--policy")
    file = experiment(kit.parent, 'name = "popularity"')
    code, said, _ = fedvine(capsys, "join", kit, "--dry-run", file)
    assert code == 0 and "facts" not in said.split("message")[1].split("In all")[0]
    assert "The run would end here: kit's answer to agree was refused, as it is an error: the " \
        "site's policy does not allow the method popularity" in said
    code, _, told = fedvine(capsys, "join", kit, "--dry-run", experiment(
        kit.parent, 'name = "edgebank"', travelled="true"))
    assert (code, told) == (0, "")


def test_an_account_is_summed_up(capsys, kit):
    code, _, told = fedvine(capsys, "account", kit)
    assert code == 2 and "no request of a server has come here" in told
    account = Account(kit / MEMORY / FOLDER)
    for out in (1000, 2000):
        account.add(run="first", function="train", kind="for training", **{"in": 10, "out": out})
    account.add(run="first", function="agree", kind="refused", code="policy-method",
                why="the site's policy does not allow\n\x1b[2J", **{"in": 10, "out": 30})
    code, said, told = fedvine(capsys, "account", kit)
    assert (code, told) == (0, "")
    assert "train" in said and "3.0 kB" in said and "3 requests, 3.0 kB left" in said
    assert "1 x refused: the site's policy does not allow ?[2J" in said
    code, said, _ = fedvine(capsys, "account", kit, "--lines")
    assert [json.loads(line)["out"] for line in said.splitlines()] == [1000, 2000, 30]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "leaves"), [
    ("power", "execute"), ("power_plus", "sum_unmask")])
def test_a_dry_run_on_a_table_of_nodes_and_one_with_secure_sums(capsys, kit, method, leaves):
    graph = labelled.whole(90, 4)
    (kit.parent / "nodes.csv").write_text("node,label,a,b,c,d,e\n" + "".join(
        f"{graph.ids[i]},{graph.classes[graph.y[i]] if graph.y[i] >= 0 else ''},"
        f"{','.join(f'{v:.4f}' for v in graph.x[i].tolist())}\n" for i in range(len(graph))))
    (kit.parent / "edges.csv").write_text("src,dst\n" + "".join(
        f"{graph.ids[u]},{graph.ids[v]}\n" for u, v in graph.edges.T.tolist()))
    file = kit.parent / "experiment.toml"
    values = {"name": method, "rounds": 1, "epochs": 1, "hidden": 4}
    if method == "power_plus":
        values |= {"width": 24, "expansion": 3, "hops": 2, "aggregate": {"secure": True}}
    file.write_text(tomlkit.dumps({"method": values}))
    code, said, told = fedvine(capsys, "join", kit, "--data", "nodes.csv", "--edges", "edges.csv",
                               "--dry-run", file)
    assert (code, told) == (0, ""), told
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert any(line.startswith("nodes classes and counts 1 ") for line in lines), said
    assert any(line.startswith(f"{leaves} for training") for line in lines), said
    assert "would end here" not in said


def test_without_a_policy_join_asks_or_wants_a_word(capsys, kit, monkeypatch):
    stayed = []
    monkeypatch.setattr(launch, "join", lambda *given, **named: stayed.append(named))
    join = ["join", kit, "--data", "shop.csv", *COLUMNS]
    code, _, told = fedvine(capsys, *join)
    assert code == 2 and "--any-method says that none is wanted" in told and not stayed
    assert fedvine(capsys, *join, "--any-method")[0] == 0
    assert stayed.pop()["values"]["any_method"] is True
    fedvine(capsys, *join, "--policy")
    assert fedvine(capsys, "join", kit)[0] == 0 and stayed.pop()["values"] is None


def test_where_nothing_confines_flare_join_asks_or_wants_a_word(capsys, kit, monkeypatch):
    stayed = []
    monkeypatch.setattr(launch, "join", lambda *given, **named: stayed.append(named))
    monkeypatch.setattr(confine, "abi", lambda: 0)
    fedvine(capsys, "join", kit, "--data", "shop.csv", *COLUMNS, "--policy")
    code, _, told = fedvine(capsys, "join", kit)
    assert code == 2 and "it has no Landlock" in told and not stayed
    assert fedvine(capsys, "join", kit, "--unconfined")[0] == 0
    assert stayed.pop()["confined"] is False


def test_the_two_halves_of_a_site_share_a_socket(capsys, kit, monkeypatch):
    stayed = []
    monkeypatch.setattr(launch, "join", lambda *given, **named: stayed.append(named["apart"]))
    monkeypatch.setattr(launch, "carry_flare", lambda *given: stayed.append(given[2]))
    fedvine(capsys, "join", kit, "--data", "shop.csv", *COLUMNS, "--policy")
    for half in ("own", "flare"):
        code, _, told = fedvine(capsys, "join", kit, "--only", half)
        assert code == 2 and "--only and --socket belong together" in told
        assert fedvine(capsys, "join", kit, "--only", half, "--socket", "/run/s")[0] == 0
    assert [str(socket) for socket in stayed] == ["/run/s", "/run/s"]


def test_erase_at_a_kit_says_what_will_be_done_and_account_who_has_done_it(capsys, kit):
    table = Data(source="shop.csv", src="user", dst="item", time="at").open()
    grown_at_a_site(kit / MEMORY / "a-run-0123456789ab" / "data", table, table.by_time("100s"))
    user = str(table.src_ids[0])
    code, _, told = fedvine(capsys, "erase", kit)
    assert code == 2 and "Say with --user, --item or --node whom to erase" in told
    code, _, told = fedvine(capsys, "erase", kit, "--user", "nobody", "--yes")
    assert code == 2 and 'has learned "nobody"; nothing is erased' in " ".join(told.split())
    code, said, told = fedvine(capsys, "erase", kit, "--user", user)
    assert code == 2 and "in a-run, and learn it again" in " ".join(told.split())
    assert not (kit / MEMORY / erasures.FILE).exists()
    code, said, told = fedvine(capsys, "erase", kit, "--user", user, "--yes")
    assert code == 0 and "rows that come back are those of a new person" in " ".join(told.split())
    receipt = said.split("Receipt: ")[1].split()[0]
    code, said, _ = fedvine(capsys, "erase", kit, "--check", receipt)
    assert code == 0 and "of a-run went" in said
    Account(kit / MEMORY / FOLDER).add(**{"run": "a run", "function": "agree", "kind": "nothing",
                                          "in": 1, "out": 1})
    code, said, _ = fedvine(capsys, "account", kit)
    assert code == 0 and "rows of a-run: the hub does not know of it yet." in " ".join(said.split())

