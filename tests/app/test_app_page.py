"""The page in a real browser: wide and narrow, by keyboard, while a run learns, with odd names."""

import os
import subprocess
import sys

import asked
import pytest
from asked import NASTY

from fedvine.tasks.tiny import tiny_graphs

pytest.importorskip("uvicorn", reason="the extra app is not installed")
import browser as browsers

pytestmark = pytest.mark.skipif(browsers.program() is None, reason="there is no Chromium here")
PLOT = "document.querySelectorAll('figure svg path').length"
@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    made = browsers.Browser(tmp_path_factory.mktemp("profile"))
    yield made
    made.close()


@pytest.fixture
def serve():
    """Start the command for folders; return its address."""
    begun = []

    def start(*words):
        begun.append(subprocess.Popen(
            [sys.executable, "-m", "fedvine", "app", *map(str, words), "--port", "0"],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}))
        return begun[-1].stdout.readline().strip()

    yield start
    for process in begun:
        process.terminate()
        process.communicate()
        assert process.returncode == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    asked.links(place / "plus", drift=True).finish()
    asked.links(place / "popular", "popularity").finish()
    asked.labels(place / "tasks").finish()
    return place


def test_wide_and_narrow_light_and_dark(browser, serve, folder):
    browser.open(serve(folder))
    browser.until(f"{PLOT} > 12")
    seen = {}
    for width in (1280, 420):
        for dark in (False, True):
            browser.size(width, dark=dark)
            browser.until(f"innerWidth === {width} && document.querySelector('figure svg')"
                          ".viewBox.baseVal.width <= document.querySelector('figure').clientWidth")
            assert browser.value("document.documentElement.scrollWidth") == width
            outside = browser.value(
                "[...document.querySelectorAll('main *')].filter(n => "
                "!n.closest('.scroll, pre') && n.getClientRects().length"
                " && n.getBoundingClientRect().right > innerWidth + 1)"
                ".map(n => n.outerHTML.slice(0, 90))")
            assert outside == []
            seen[width, dark] = browser.value("getComputedStyle(document.body).backgroundColor")
    assert seen[1280, False] == seen[420, False] != seen[1280, True] == seen[420, True]
    text = browser.value("document.body.innerText")
    for word in ("Side by side", "Ask the model", "Clients", "Drift", "ada", "bob", "cyd"):
        assert word in text
    assert browser.said == []


def test_a_question_by_keyboard_alone(browser, serve, folder):
    address = serve(folder)
    browser.open(f"{address}&run=0")
    browser.until(f"{PLOT} > 12 && document.querySelector('form.ask')")
    reached = []
    for _ in range(80):             # from the top of the page, with Tab, to the box of the user
        browser.key("Tab", 9)
        where = browser.value("document.activeElement.name || document.activeElement.tagName")
        reached.append(where)
        assert browser.value("getComputedStyle(document.activeElement).outlineStyle") != "none" or (
            browser.value("getComputedStyle(document.activeElement.closest('label') || "
                          "document.activeElement).outlineStyle") != "none"), where
        if where == "user":
            break
    assert reached[-1] == "user" and {"A", "score", "svg", "client"} <= set(reached)
    browser.type("100")
    browser.key("Enter", 13, "\r")
    browser.until("document.querySelectorAll('.answer tbody tr').length > 5")
    text = browser.value("document.querySelector('.answer').innerText")
    assert "Likeliest for 100 at ada" in text and "Rests on the last edges of 100" in text
    browser.value("document.querySelector('input[name=user]').value = 'nobody'")
    browser.value("document.querySelector('form.ask').requestSubmit()")
    browser.until("document.querySelector('form.ask ~ div .error')")
    assert 'a user called "nobody"' in browser.value("document.body.innerText")


def test_the_label_of_a_node_and_the_matrix_of_tasks(browser, serve, folder):
    browser.open(f"{serve(folder)}&run=2")
    browser.until("document.querySelectorAll('figure svg rect').length >= 10")
    part = tiny_graphs()[0].parts["bob"]
    node = part.names()[int(part.edges[0, 0])]
    browser.value(f"document.querySelector('input[name=user]').value = '{node}'")
    browser.value("document.querySelector('form.ask').requestSubmit()")
    browser.until("document.querySelectorAll('.answer tbody tr').length > 5")
    text = browser.value("document.querySelector('.answer').innerText")
    assert f"Rests on neighbours of {node}" in text


def test_a_run_that_is_learning_is_followed_without_a_reload(browser, serve, tmp_path):
    made = asked.links(tmp_path / "run", "popularity")
    browser.open(serve(tmp_path / "run"))
    browser.until("document.querySelector('#rows tbody tr')")
    browser.value("window.before = document.querySelector('form.ask') || 1; document.loads = 1")
    browser.until("document.querySelector('form.ask')")
    browser.value("document.querySelector('input[name=user]').value = '100'")
    points = "document.querySelectorAll('#rows .bar span')[0].style.width"
    widths = []
    for stage in made:
        learned = 25 * min(stage.t + 1, 3)      # after the last stage nothing is left to score
        browser.until(f"{points} === '{learned}%'")
        widths.append(browser.value(points))
        if stage.t == 1:
            browser.until(f"{PLOT} >= 4 && document.querySelectorAll('.legend b').length")
            assert "learning" in browser.value("document.querySelector('#rows').innerText")
    browser.until("document.querySelector('#rows').innerText.includes('finished')")
    assert widths == ["25%", "50%", "75%", "75%"] and browser.value("document.loads") == 1
    assert browser.value("document.querySelector('input[name=user]').value") == "100"
    mean = made.summary["scores"]["test"]["mean"]["auc_new"]
    browser.until(f"document.querySelector('#rows').innerText.includes('{mean:.3f}')")


def test_names_that_look_like_markup_are_text(browser, serve, tmp_path):
    asked.links(tmp_path / NASTY.replace("/", ""), "popularity", names=(NASTY, "bob", "cyd"),
                prefix=NASTY).finish()
    browser.open(serve(tmp_path))
    browser.until(f"{PLOT} > 6 && document.querySelector('form.ask')")
    browser.value(f"document.querySelector('input[name=user]').value = {NASTY + '100'!r}")
    browser.value("document.querySelector('form.ask').requestSubmit()")
    browser.until("document.querySelectorAll('.answer tbody tr').length > 2")
    assert browser.value("document.title").endswith("- fedvine")
    assert browser.value("document.images.length + document.scripts.length") == 1
    assert NASTY in browser.value("document.querySelector('.answer').textContent")
    # Even a script that came onto the page would not run, nor text become markup.
    browser.value("""const s = document.createElement('script');
        try { s.textContent = "document.title = 'harmed'"; document.body.append(s); } catch {}
        try { document.body.insertAdjacentHTML('beforeend', '<img src=x>'); } catch {}""")
    assert browser.value("document.title").endswith("- fedvine")
    assert browser.value("document.images.length") == 0
    browser.said.clear()            # the browser reports the two refusals


def test_the_token_is_taken_from_the_address_and_leaves_it(browser, serve, folder):
    address = serve(folder, "--host", "0.0.0.0").replace("0.0.0.0", "127.0.0.1")
    browser.open(address.partition("#")[0])
    browser.until("document.getElementById('token')")
    assert "popular" not in browser.value("document.body.innerText")
    browser.value(f"location.hash = '{address.partition('#')[2]}'")
    browser.until(f"{PLOT} > 12")
    assert "token" not in browser.value("location.href")
    browser.value("sessionStorage.clear()")
    browser.said.clear()            # the browser reports the answer 401
