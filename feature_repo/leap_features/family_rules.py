"""The built-in family rules: which parts of a job's name tell one run from another, and which never do.

Patterns see the name as `family.normalise` leaves it: lower case, words joined by single `-`, and `.` or `:` only
between digits. `IDS`, `WHOLE` and `KEEP` patterns match whole words or runs of words; `INSIDE` patterns may also begin
or end in the middle of a word (`bert20240131`). Every one of them needs at least one digit to match, which lets most
names skip them. No repeat can divide its text among its parts in more than one way, so the time is bounded.

Each rule has a name, under which a rules file can switch it off. A change here that changes any family must change
`CODE_VERSION` as well (a test holds a digest of this module's rules against it).
"""

from __future__ import annotations

from typing import Final

CODE_VERSION: Final = "1"

# Years stop at 2039: 2048 is a sequence length far more often than a year.
_YEAR = r"(?:199[0-9]|20[0-3][0-9])"
_MM = r"(?:0[1-9]|1[0-2])"
_DD = r"(?:0[1-9]|[12][0-9]|3[01])"
_MONTH = r"(?:0?[1-9]|1[0-2])"
_DAY = r"(?:0?[1-9]|[12][0-9]|3[01])"
_HOUR = r"(?:[01][0-9]|2[0-3])"
_SIXTY = r"[0-5][0-9]"
_ZONE = r"(?:z|-?(?:utc|gmt)|-[01][0-9]:?[0-5][0-9])?"
# Hours and minutes (unless they are the day and month of a year), and maybe seconds with a fraction: behind a point, or
# behind a dash if it has three digits.
_TIME = (
    rf"{_HOUR}[-:.h]?{_SIXTY}"
    rf"(?:[-:.m]?(?:{_SIXTY}|60)s?(?:-[0-9]{{3}}(?![0-9a-z])|\.[0-9]{{3,9}})?|(?![-.]{_YEAR}(?![0-9])))"
    rf"(?:-?[ap]m)?m?{_ZONE}(?![0-9a-z]|[.:][0-9])"
)
# Behind a dash these are sequence lengths and batch sizes rather than a minute of the day, and years begin a date.
_NO_TIME = rf"(?!(?:1024|1280|1536|2048)(?![0-9])|{_YEAR}[-.:]?{_MONTH}[-.:]?{_DAY})"
# A time written right behind its date, an hour alone behind a T, or a letter: `20240131b` is a day's second run.
_AT = rf"(?:(?:-t-?|t-?|-at-|-{_NO_TIME})?{_TIME}|t{_HOUR}(?![0-9a-z])|[a-z](?![^-]))?"
# Year first or last, with one separator throughout.
_DAY_MONTH = [rf"(?:{_DAY}{mark}{_MONTH}|{_MONTH}{mark}{_DAY}){mark}" for mark in ("-", r"\.")]
_DATE = (
    rf"(?:{_YEAR}(?:{_MM}{_DD}|-{_MONTH}-{_DAY}|\.{_MONTH}\.{_DAY}|:{_MONTH}:{_DAY}){_AT}(?![0-9])"
    rf"|(?:{'|'.join(_DAY_MONTH)}){_YEAR}{_AT}(?![0-9])|{_YEAR}年{_MONTH}月{_DAY}日)"
)
_MONTH_NAME = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)"
)
_YEAR_ALONE = rf"{_YEAR}(?!-{_MONTH}-{_DAY}(?![0-9]))"
_WEEKDAY = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)(?:day|sday|nesday|rsday|urday)?-)?"
_ORDINAL = r"(?:st|nd|rd|th)?"

# Words that count runs. With a number (`run12`, `run-12`, `seed=42`) they go wherever they stand.
_COUNTERS = (
    r"(?:re)?runs?|retry|retries|try|attempts?|trials?|restart(?:ed)?|resumed?|(?:random-)?seeds?|reps?|repeats?"
    r"|repetition|replicate|copy|clone|final|exp|expt|experiment|jobs?|job-?id|jid|pid|fold|take|build|pr|wk|ww|cw"
    r"|slurm|sbatch|pbs|lsf"
)
_PARAMETERS = (
    r"seq|seq-?len|sl|ctx|len|bs|bsz|gbs|mbs|mb|batch-?size|lr|wd|dim|hidden|layers|heads|topk|top-?k|tp|pp|dp|ep|cp"
    r"|sp|mp|zero|stage|phase|part|gpus|nodes|trainers|workers|np|nproc|world-?size|epochs|steps|lora-?rank|fp|bf"
    r"|int|cuda|v|ver|version|n|k|px"
)

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# Between a word and its number. A UUID is no number of the word before it.
_DASH = rf"(?:-(?!{_UUID}(?![^-.:])))"

# Whole words that are tried before dates: an id may hold what looks like one.
IDS: Final[dict[str, str]] = {
    # Weights & Biases' name of a run's folder: run-20240131_123005-3k9x2m1q.
    "wandb_run": r"(?:offline-)?run-[0-9]{8}-[0-9]{6}-[0-9a-z]{8}",
    "uuid": _UUID,
    # Seven is the length of git's short hash. Letters and digits both: `defaced` is a word, and numbers have a rule.
    "hash": (
        rf"(?:(?:git|sha|sha1|sha256|commit|rev|hash){_DASH}?)?(?:0x|g)?"
        rf"(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{{7,64}}|(?:git|commit|rev){_DASH}[0-9]{{6,}}"
    ),
}

INSIDE: Final[dict[str, str]] = {
    "date": rf"(?<![0-9]){_DATE}|(?<![0-9]){_YEAR}-?w[0-5][0-9](?:-?[1-7])?(?![0-9])",
    # Seconds, milli-, micro- or nanoseconds since 1970, of the years 2014 to 2033.
    "epoch": r"(?<![0-9])1[4-9][0-9]{8}(?:[0-9]{3}|[0-9]{6}|[0-9]{9})?(?:\.[0-9]+)?(?![0-9])",
}

WHOLE: Final[dict[str, str]] = {
    "counter": (
        rf"(?:{_COUNTERS}){_DASH}?(?:{_DATE}|(?:(?:no|num|nr|number|id)-?)?[0-9]+(?:\.[0-9]+)*(?:-?of-?[0-9]+)?)"
        r"|[0-9]{1,4}(?:st|nd|rd|th)-(?:run|try|attempt|trial|retry|rerun)|[0-9]+-?of-?[0-9]+"
        r"|j[0-9]{4,}|week-?[0-5][0-9]"
    ),
    "month_date": (
        rf"{_WEEKDAY}{_MONTH_NAME}-?{_DAY}{_ORDINAL}(?:-{_NO_TIME}{_TIME})?(?:-?{_YEAR_ALONE})?"
        rf"|{_WEEKDAY}{_DAY}{_ORDINAL}-?{_MONTH_NAME}(?:-?(?:{_YEAR_ALONE}|[0-9]{{2}}))?(?:-{_NO_TIME}{_TIME})?"
        rf"|{_MONTH_NAME}-?{_YEAR}|{_YEAR}-?{_MONTH_NAME}(?:-?{_DAY})?|{_YEAR}-{_MM}"
    ),
    "time": (
        rf"t?{_HOUR}:{_SIXTY}(?::{_SIXTY}(?:\.[0-9]+)?)?(?:-?[ap]m)?{_ZONE}|[0-9]:{_SIXTY}:{_SIXTY}"
        rf"|t{_HOUR}{_SIXTY}{_SIXTY}z?|{_HOUR}h{_SIXTY}(?:m(?:{_SIXTY}s?)?)?|(?:0?[1-9]|1[0-2])[ap]m"
    ),
    # Ray Tune: 1a2b3_00004_4.
    "ray_trial": r"[0-9a-f]{5,8}-0[0-9]{4}(?:-[0-9]{1,5})?",
    "ray_submission": r"raysubmit-(?=[a-z]*[0-9])[0-9a-z]{12,32}",
    "checkpoint": rf"(?:ckpt|checkpoint|global-step|step|iter|iteration){_DASH}?[0-9]{{3,}}",
    "address": r"ip(?:-[0-9]{1,3}){4}|[0-9]{1,3}(?:\.[0-9]{1,3}){3}",
    # Longer than any parameter that people write out: job ids, times of day, dates without a century.
    "long_number": r"[0-9]{6,}(?:\.[0-9]+)?",
    "padded_number": r"0[0-9]+",
    # Base-36 and base-58 ids: at least three numbers in a word of 16 or more characters. Not `tp8pp4dp2bs32seq2048`.
    "random_id": (
        r"(?=[a-z]*[0-9]+[a-z]+[0-9]+[a-z]+[0-9])"
        r"(?!(?:[a-z]{3,}[0-9]+)?(?:(?:seq|ctx|bs|gbs|mbs|mb|lr|wd|tp|pp|dp|ep|cp|sp|mp|fp|bf|int|[abdehklnsvx])[0-9]+)+"
        r"(?![^-]))[0-9a-z]{16,}"
    ),
}

# Switched off by name like the others; what they do is in `family`, since they look at an end of the name only.
ENDS: Final[tuple[str, ...]] = ("copy_of", "tail_number", "tail_word", "rerun", "generated_name", "pod")

# The number is not the day or month of a date that goes on.
_NO_DATE = rf"(?!-{_DAY}-{_YEAR}(?![0-9]))"

KEEP: Final[dict[str, str]] = {
    # `enc6-dec12` is not the twelfth of December.
    "encoder_decoder": (
        r"enc(?:oder)?-?[0-9]+-dec(?:oder)?-?[0-9]+|dec(?:oder)?-?[0-9]+-enc(?:oder)?-?[0-9]+"
        r"|[0-9]+-?enc(?:oder)?-[0-9]+-?dec(?:oder)?|[0-9]+-?dec(?:oder)?-[0-9]+-?enc(?:oder)?"
    ),
    "exponent": r"(?:(?:lr|wd|eps|tol)-?)?[0-9](?:\.[0-9]+)?e-[0-9]{1,2}",
    "parameter": (
        rf"(?:{_PARAMETERS})-(?!{_YEAR}-?{_MM}-?{_DD}(?![0-9]))"
        rf"(?:[0-9]{{1,7}}(?:\.[0-9]+)*|[0-9]{{1,4}}[a-z]{{1,2}}){_NO_DATE}"
    ),
    "model_number": (
        r"(?:resnet-(?:18|26|34|50|101|152|200|269)|resnext-(?:50|101|152)|densenet-(?:121|161|169|201|264)"
        r"|vgg-(?:11|13|16|19)|wrn-[0-9]{2}-[0-9]{1,2}|inception-[1-4]|ssd-(?:300|512)|yolo-(?:[3-9]|1[0-2])"
        r"|gpt-[1-5]|llama-[1-4]|phi-[1-4]|gemma-[1-4]|qwen-[1-3]|deepseek-[rv][1-4]|(?:stable-diffusion|sd)-[1-3]"
        r"|vit-(?:ti|tiny|s|small|b|base|l|large|h|huge|g)-(?:8|14|16|32)|(?:alpha|open)fold-[23]|q?lora-r-?[0-9]{1,3}"
        rf"|(?:voc|coco|imagenet|ilsvrc)-20[01][0-9](?!-{_MONTH}-{_DAY}(?![0-9]))|wmt-(?:20)?[0-2][0-9]|wav2vec-2"
        rf"|cifar-100?){_NO_DATE}"
    ),
    # Only where the number cannot be a run's: `x-h100-80` may be the eightieth run on H100s.
    "hardware": (
        r"(?:(?:[pvahb][0-9]{2,3}|g[bh]200)-(?:sxm[0-9]?|pcie|nvl)-(?:16|32|40|80|94|96|141|180|192)"
        rf"|(?:rtx|gtx)-[1-5]0[5-9]0){_NO_DATE}"
    ),
}

# Counting words that also go without a number, at the end: `bert-final`, and what `bert-run-20240131` leaves.
TAIL_WORDS: Final = frozenset(
    """
    run rerun retry attempt trial try restart restarted resume resumed rep repeat seed copy clone final job exp expt
    experiment
    """.split()  # noqa: SIM905 - as a list it would fill a page
)

# Consonant-only words and abbreviations of this field. Five characters that hold one are no random suffix.
ABBREVIATIONS: Final = tuple(
    """
    lstm gru dlrm gnmt fsdp rwkv dbrx mpt gpt sdxl rnnt rcnn vgg cnn rnn mlp dcn tft nlp llm vlm slm glm ctc ctr cvr
    ddp nmt wmt ptb kdd pvt tts stt ctx crf gcn gnn gbm xgb dqn sft mtl tdm rnk trn tst prd stg dbg cfg ckpt mdl fwd
    bwd lm nn
    """.split()  # noqa: SIM905 - as a list it would fill a page
)

# `nimble-fox-123` (MLflow), `fanciful-sunset-42` and `snowy-sweep-7` (Weights & Biases): made up for one run.
ADJECTIVES: Final = frozenset(
    """
    able abundant adorable amazing ambitious amusing ancient apricot astral auspicious autumn awesome azure balmy
    bittersweet blooming blue blushing bold bouncy brave breezy bright brisk calm capable captivating carefree
    caring celestial charming chaste cheerful chill chocolate classic classy clever clumsy cold comfy comic cool
    cosmic crimson crisp curious daily dainty dandy dapper dark dashing dauntless dazzling delicate denim desert
    devout different divine drawn dulcet eager earnest earthy easy efficient effortless elated electric elegant
    eminent enchanted enchanting enthused exalted expert fallen famous fanciful fancy fearless feasible fiery floral
    flowing fluent fragrant fresh frosty funny gallant generous gentle giddy gifted glad glamorous gleaming glorious
    glowing golden graceful grateful happy hardy hearty helpful honest hopeful icy indecisive industrious
    intelligent intrigued invincible jolly jovial jumping kind kindled laced languid laudable leafy learned
    legendary lemon likeable lilac lively logical lovely loyal lucky luminous lunar lush magical magnificent major
    masked mellow merciful merry mild misty morning mysterious neat nebulous nervous nice nimble noble noisy
    northern olive omniscient orchid orderly peach peachy placid playful pleasant polished polite popular pretty
    proud quick quiet rare rebellious receptive red redolent resilient righteous ringed robust rogue rose rosy royal
    ruddy rural sandy sassy scented secretive sedate selective serene shimmering shiny silver silvery skillful sleek
    smart snowy soft solar spirited splendid spring stately stellar sticky stilted stoic sturdy stylish suave
    sublime summer sunny sweet swept swift tasteful thoughtful thundering tough traveling treasured trim trusting
    twilight ultimate unequaled unique unleashed upbeat useful usual vague valiant valuable vibrant victorious vital
    vivid volcanic wandering warm whimsical whole wild wise wistful wobbly worldly woven young youthful zany zealous
    zesty
    """.split()  # noqa: SIM905 - as a list it would fill pages
)
NOUNS: Final = frozenset(
    """
    ant ape armadillo asp bass bat bear bee bird boar bug bush butterfly calf carp cat cherry chimp cloud cod colt
    conch cosmos cow crab crane crow cub darkness dawn deer deluge dew disco doe dog dolphin donkey donut dove
    dragon dream duck durian dust eel elevator elk eon etchings fawn feather field finch fire firebrand fish flea
    flower fly foal fog forest fowl fox frog frost galaxy gates glade glitter gnat gnu goat goose gorge grass grouse
    grub gull hare hawk haze hen hill hog horse hound jay jazz kit kite koi lake lamb lark leaf lion loon lynx mare
    meadow microwave midge mink mole moon moose moth mountain mouse mule newt night oath owl ox panda penguin perch
    pig pine planet plasma pond puddle pug pyramid quail rain ram rat ray resonance river robin roo rook salad sea
    seal serenity shad shadow shape shark sheep shoat shrew shrike shrimp silence skink skunk sky sloth slug smelt
    smoke snail snake snipe snow snowball snowflake sow sponge squid squirrel stag star steed stoat stork sun sunset
    surf swan sweep tern thunder toad totem tree trout turtle universe valley violet vole wasp water waterfall wave
    whale wildflower wind wolf wood worm wren yak yogurt zebra
    """.split()  # noqa: SIM905 - as a list it would fill pages
)
