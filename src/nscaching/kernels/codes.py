"""The numbers by which compiled code knows models, forms and strategies."""

from nscaching.models import Form, Model
from nscaching.models.bilinear import ComplEx, DistMult
from nscaching.models.translational import TransD, TransE, TransH

DOT, DISTANCE, SHIFTED = 0, 1, 2
IMPORTANCE, TOP, UNIFORM = 0, 1, 2
DISTMULT, COMPLEX, TRANSE, TRANSH, TRANSD, GIVEN = range(6)

FORMS: dict[Form | None, int] = {Form.DOT: DOT, Form.DISTANCE: DISTANCE, Form.SHIFTED: SHIFTED}
"""Forms with compiled refreshes; torch refreshes models of other forms or without a form."""

STRATEGIES = {"importance": IMPORTANCE, "top": TOP, "uniform": UNIFORM}
KINDS: dict[type[Model], int] = {
    DistMult: DISTMULT,
    ComplEx: COMPLEX,
    TransE: TRANSE,
    TransH: TRANSH,
    TransD: TRANSD,
}
"""Models with compiled gradients: these classes, not others derived from them.

Of all other models, which are GIVEN, torch makes the query vectors and takes their gradients back.
"""
