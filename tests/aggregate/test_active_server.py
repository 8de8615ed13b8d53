"""A server that lies opens no upload: each attempt ends in a refusal of the clients."""

import numpy as np
import pytest
from parties import NAMES, Sum, identities, key, roster

from fedvine.aggregate.bonawitz import Party, fewest
from fedvine.aggregate.identities import RosterMember, der
from fedvine.core.errors import FedvineError

refused = pytest.raises


# -- keys -------------------------------------------------------------------------------------
FOUR = roster(NAMES[:4])


def keys_of(name, of, known, told=None):
    """What ``name`` sends with the key of ``of`` and a roster; it may tell another one."""
    member = RosterMember(name, key(of), known)
    member.roster = told or known
    return {name: Party(member, 1).keys()}


LIES = {
    # The hub can sign any key as bob's; ada goes by the fingerprint that bob's people read out.
    "a second certificate": (lambda keys: keys_of(
        "bob", "bob again", FOUR | {"bob": roster(["bob again"])["bob again"]}, FOUR),
        "bob's does not have the fingerprint"),
    "another client's": (lambda keys: {"bob": keys["dan"]}, "bob's does not have the fingerprint"),
    # The server's own key in place of bob's would open what is encrypted for bob.
    **{part: (lambda keys, part=part: {"bob": {
        **keys["bob"], part: 2 if part == "needed" else Sum(4).keys()["bob"][part]}},
        "bob did not sign") for part in ("seal", "mask", "own", "needed")},
    "of another sum": (lambda keys: {"bob": Sum(4, number=2).keys()["bob"]}, "bob did not sign"),
    "not ada's": (lambda keys: {"ada": Sum(4).keys()["ada"]}, "do not have those that ada sent"),
    "a stranger's": (lambda keys: keys_of("mallory", "mallory", roster([*NAMES[:4], "mallory"])),
                     "mallory is not on the roster of ada"),
    "another roster": (lambda keys: keys_of("bob", "bob", FOUR | roster(["eve"])),
                       "bob has another roster than ada")}


@pytest.mark.parametrize("lie", LIES)
def test_false_keys_are_noticed(lie):
    adding, (changed, said) = Sum(4), LIES[lie]
    keys = adding.keys()
    with refused(FedvineError, match=said):
        adding.parties["ada"].shares({**keys, **changed(keys)})


def test_a_sum_of_few_needs_as_many_of_the_roster():
    """The server says who takes part; how many must stay follows from the client's own roster."""
    adding = Sum(10)
    keys = adding.keys()
    with refused(FedvineError, match="secure sum of 10 clients needs 7 of them; 2 are left"):
        adding.parties["ada"].shares({n: keys[n] for n in ("ada", "eve")})
    assert Party(identities(10)["ada"], 1, 1).threshold == 7    # a server may ask for more alone
    assert Party(identities(10)["ada"], 1, 9).threshold == 9


def test_without_a_roster_a_client_adds_nothing():
    with refused(FedvineError, match="has no roster"):
        Party(RosterMember("ada", None, {}), 1).keys()
    with refused(FedvineError, match="another fingerprint for bob"):
        RosterMember("bob", key("bob again"), roster(NAMES[:4]))


# -- shares and vectors -----------------------------------------------------------------------
def test_a_share_that_was_changed_or_is_another_ones_is_noticed():
    for of, change in (("bob", lambda box: box[:-1] + bytes([box[-1] ^ 1])),
                       ("dan", lambda box: box)):
        adding = Sum(4)
        adding.shares()
        sealed = adding.sealed("ada")
        with refused(FedvineError, match="said to be bob's is not"):
            adding.parties["ada"].masked(adding.vectors["ada"],
                                         sealed | {"bob": change(sealed[of])})


@pytest.mark.parametrize("of", [["ada"], ["ada", "bob"], ["bob", "cyd", "dan"]])
def test_a_vector_is_sent_with_masks_of_enough_clients_alone(of):
    """With fewer, the server and a site that helps it could take the masks off."""
    adding = Sum(4)
    adding.shares()
    with refused(FedvineError, match="needs 3|do not have ada's own"):
        adding.parties["ada"].masked(adding.vectors["ada"], adding.sealed("ada", of))


def test_two_uploads_under_one_mask_would_differ_in_the_clear():
    adding = Sum(4)
    adding.masked()
    with refused(FedvineError, match="step masked of a sum a second time"):
        adding.parties["ada"].masked(adding.vectors["ada"] + np.uint64(1), adding.sealed("ada"))


# -- who stayed -------------------------------------------------------------------------------
def test_lies_about_who_stayed_open_nothing():
    """Told to two clients each, two lists have two signatures each, and three are needed."""
    adding = Sum(4)
    adding.masked()
    lists = {"ada": NAMES[:4], "bob": NAMES[:4], "cyd": NAMES[:3], "dan": NAMES[1:4]}
    signed = {n: adding.parties[n].agree(came) for n, came in lists.items()}
    for name in ("ada", "bob"):
        with refused(FedvineError, match="(cyd|dan) did not sign"):
            adding.parties[name].unmask(signed)
    with refused(FedvineError, match="needs 3 of them; 2 are left"):
        adding.parties["cyd"].unmask({n: signed[n] for n in ("ada", "cyd")})


@pytest.mark.parametrize("clients", [4, 7, 10])
def test_sites_that_help_the_server_cannot_make_two_lists_good(clients):
    """With n - t of them, which sign everything, one of two lists stays below t signatures."""
    adding, stay = Sum(clients), fewest(clients)
    adding.masked()
    helpers, honest = NAMES[stay:clients], NAMES[:stay]
    half = len(honest) // 2 + len(honest) % 2
    groups = honest[:half], honest[half:]
    refusals = []
    for mine, gone in zip(groups, reversed(groups), strict=True):
        came = [n for n in NAMES[:clients] if n != gone[0]]     # the other half's first is "gone"
        signed = {n: adding.parties[n].agree(came) for n in mine}
        for n in helpers:
            party = adding.parties[n]
            party._came = came
            signed[n] = party.identity.sign(*party._agreed())
        try:
            adding.parties[mine[0]].unmask(signed)
        except FedvineError as error:
            refusals.append(str(error))
    assert refusals and all(f"needs {stay}" in why for why in refusals)


def test_both_shares_of_one_client_are_never_given():
    adding = Sum(4)
    signed = adding.agreed(NAMES[:4])
    for came in (NAMES[:3], NAMES[:4]):
        with refused(FedvineError, match="step agree of a sum a second time"):
            adding.parties["ada"].agree(came)              # dan is gone, says the server now
    found = adding.parties["ada"].unmask(signed)
    assert set(found["own"]) == set(NAMES[:4]) and not found["mask"]
    with refused(FedvineError, match="step unmask of a sum a second time"):
        adding.parties["ada"].unmask(signed)


@pytest.mark.parametrize("came", [[], ["ada"], ["ada", "bob"], ["ada", "bob", "cyd", "mallory"],
                                  ["bob", "cyd", "dan"]])
def test_no_list_of_too_few_of_strangers_or_without_oneself_is_signed(came):
    adding = Sum(4)
    adding.masked()
    with refused(FedvineError, match="needs 3|unknown ones"):
        adding.parties["ada"].agree(came)


def test_signatures_must_be_of_this_list_and_sum_by_clients_on_it():
    for lie in ("another list", "another sum", "too few", "one's own twice"):
        adding, other = Sum(4), Sum(4, number=2)
        signed = adding.agreed(NAMES[:4])
        more = {"another list": lambda o=other: {"cyd": Sum(4).agreed(NAMES[:3])["cyd"]},
                "another sum": lambda o=other: {"cyd": o.agreed(NAMES[:4])["cyd"]},
                "one's own twice": lambda s=signed: {"cyd": s["ada"]},
                "too few": dict}[lie]()
        if lie == "too few":
            signed = {n: signed[n] for n in ("ada", "bob")}
        with refused(FedvineError, match=r"did not sign|needs 3"):
            adding.parties["ada"].unmask({**signed, **more})


def test_who_vanished_signs_nothing_that_counts():
    adding = Sum(4)
    signed = adding.agreed(NAMES[:3])
    gone = adding.parties["dan"]
    gone._came = NAMES[:3]                      # dan helps the server
    forged = {"dan": gone.identity.sign(*gone._agreed())}
    with refused(FedvineError, match="dan, who signed the list .* is not on it"):
        adding.parties["ada"].unmask({n: signed[n] for n in ("ada", "bob")} | forged)


@pytest.mark.parametrize("step", ["shares", "masked", "agree", "unmask"])
def test_no_step_comes_before_its_turn_or_twice(step):
    adding = Sum(4)
    signed = adding.agreed(NAMES[:4])
    calls = {"shares": lambda p: p.shares(adding.sent_keys),
             "masked": lambda p: p.masked(adding.vectors["ada"], adding.sealed("ada")),
             "agree": lambda p: p.agree(NAMES[:4]), "unmask": lambda p: p.unmask(signed)}
    fresh = Party(identities(4)["ada"], 1)
    with refused(FedvineError, match=f"step {step} of a sum a second time, or out of its order"):
        calls[step](fresh)
    done = adding.parties["ada"]
    done.unmask(signed)
    with refused(FedvineError, match=f"step {step} of a sum a second time"):
        calls[step](done)


def test_every_kind_of_kit_key_signs():
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    from fedvine.aggregate.identities import fingerprint
    made = {"ada": rsa.generate_private_key(65537, 2048), "bob": key("bob"),
            "cyd": ec.generate_private_key(ec.SECP256R1())}
    known = {n: fingerprint(der(k.public_key())) for n, k in made.items()}
    people = {n: RosterMember(n, k, known) for n, k in made.items()}
    for name, one in people.items():
        signature = one.sign("a", 1, b"b")
        people["ada"].check(name, one.public, signature, "a", 1, b"b")
        with refused(FedvineError, match=f"{name} did not sign"):
            people["ada"].check(name, one.public, signature, "a", 1, b"c")
