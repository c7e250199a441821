"""Detect the language of a text from its script and its function words.

Only languages with a Snowball stemmer and a distinct set of function words are distinguished. Any other text in Latin
script is analysed as English, which costs no more than a missed stem.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection as AnyCollection

from retrievers.text.unicode_normalisation import limit_marks

DEFAULT_LANGUAGE = "en"

# The most common function words of each language. They identify the language, and full-text search leaves them out.
STOP_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": """a about above after again against all also am an and any are as at be because been before being
            below between both but by can cannot could did do does doing down during each few for from further get
            had has have having he her here hers herself him himself his how i if in into is it its itself just let
            me more most must my myself no nor not now of off on once only or other our ours ourselves out over own
            please same she should so some such than that the their theirs them themselves then there these they
            this those through to too under until up upon us very was we were what when where which while who whom
            whose why will with would you your yours yourself yourselves""",
        "de": """aber als am an auch auf aus bei bin bis bist da damit das dass dein dem den der des dich die dies
            diese dieser dieses doch dort du durch ein eine einem einen einer eines er es für gegen hat hatte ich ihm
            ihn ihr ihre im in ist ja jede kann kein keine mein mich mir mit muss nach nicht noch nur ob oder ohne
            sehr sein seine sich sie sind so soll über um und uns unser unter vom von vor war waren was weil wenn wer
            werden wie wir wird wo zu zum zur""",
        "fr": """au aux avec ce ces cette comme dans de des du elle elles en est et être eu il ils je la le les leur
            leurs lui mais me même mes moi mon ne nos notre nous on ont ou où par pas plus pour qu que quel quelle
            quels qui sa sans se ses si son sont sur ta te tes toi ton tu un une vos votre vous à été était""",
        "es": """al algo como con cual cuando de del desde donde dos el ella ellas ellos en entre era es esa ese eso
            esta este esto están está fue ha han hasta hay la las le les lo los mas me mi muy más no nos o otra para
            pero por porque qué que quien se ser si sin sobre son su sus también te tiene todo tu un una uno y ya""",
        "it": """al alla alle anche che chi ci come con cosa da dal dalla degli dei del della delle di dove e ed era
            gli ha hanno i il in io la le lo loro ma mi nei nel nella noi non o per perché più quale quando quello
            questa questo se si sono sua sul sulla suo ti tra tu un una uno voi è""",
        "pt": """ao aos as até com como da das de dela dele do dos e ela ele eles em entre era essa esse esta este eu
            foi há isso isto já lhe mais mas me mesmo meu minha muito na nas no nos não nós o os ou para pela pelo
            por qual quando que quem se sem ser seu sua são só também te tem um uma você à é""",
        "nl": """aan al als bij dan dat de der deze die dit doch door dus een en er geen had heb hebben heeft het hij
            hoe hun ik in is je kan maar me meer men met mij mijn moet na naar niet nog nu of om omdat ons ook op
            over te tegen tot uit van veel voor waar was wat we werd wie wij wil worden wordt ze zich zij zijn zo zou
            zonder""",
        "sv": """att av blev bli de dem den denna det detta dig din du där efter ej eller en er ett från för ha hade
            han har hon hur här i icke inte jag kan med men mig min mot mycket ni nu när någon och om oss på sedan
            sig sin som så till under upp ut vad var vara vi vid är över""",
    }.items()
}

_VOTERS = {
    word: [language for language, words in STOP_WORDS.items() if word in words]
    for word in set().union(*STOP_WORDS.values())
}

_WORD = re.compile(r"[^\W\d_]+")
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]")
_CHINESE = re.compile("[的了是在吗呢吧哪谁么何几有和与怎请]|多少")
_KANA = re.compile(r"[\u3040-\u30ff]")
_HANGUL = re.compile(r"[\uac00-\ud7af]")
_SAMPLE_CHARACTERS = 4000
# Minimum number of function words that decide for a language. A single one may also occur in another language.
_SURE_VOTES = 2


def detect_language(text: str, among: AnyCollection[str] | None = None) -> str:
    """Return the ISO 639-1 code of a text's main language.

    Chinese, Japanese and Korean are recognised by their script, the languages of `STOP_WORDS` by their function words.

    Args:
        among: languages to choose from by function words (for a question, those of the collection); None for all.
            Chinese, Japanese and Korean are recognised even if they are not among them.
    Returns:
        For a text with too few function words to decide, `DEFAULT_LANGUAGE`; if that is not in `among`, the language in
        `among` with most of its function words in the text.
    """
    sample = unicodedata.normalize("NFC", limit_marks(text[:_SAMPLE_CHARACTERS]))
    letters = len(_WORD.findall(sample))
    han, kana = len(_HAN.findall(sample)), len(_KANA.findall(sample))
    hangul = len(_HANGUL.findall(sample))
    votes: Counter[str] = Counter()
    for word in _WORD.findall(sample.lower()):
        for language in _VOTERS.get(word, ()):
            votes[language] += 1
    # A sentence in another language may quote a few such characters. It then has function words, and more Latin words.
    quoted = max(votes.values(), default=0) >= _SURE_VOTES and han + kana + hangul < 2 * letters
    if kana and kana * 4 >= han and kana + han > letters and not quoted:
        return "ja"
    if hangul * 2 > letters and not quoted:
        return "ko"
    # Chinese text mixes in Latin names, but Chinese function words show that the sentence is Chinese.
    if han and han >= letters / 2 and (not quoted or _CHINESE.search(sample)):
        return "zh"
    allowed = [language for language in STOP_WORDS if not among or language in among]
    if not allowed:
        return DEFAULT_LANGUAGE
    best = max(allowed, key=lambda language: (votes[language], language == DEFAULT_LANGUAGE))
    if votes[best] >= _SURE_VOTES or len(allowed) == 1:
        return best
    return DEFAULT_LANGUAGE if DEFAULT_LANGUAGE in allowed else best
