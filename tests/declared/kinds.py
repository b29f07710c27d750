"""One tiny model of every kind of data that is served."""

from tests.declared import any_likelihood, columns, hierarchies
from tests.declared.factors import FactorKind, factor_kind_model
from tests.declared.features import feature_model
from tests.declared.networks import network_model
from tests.declared.normals import normals_model
from tests.declared.views import tiny_views

MODELS = {
    "features": feature_model,
    "networks": lambda: network_model(hyperpriors=True),
    "normal": lambda: normals_model("own"),
    "columns": lambda: columns.declared("poisson"),
    "declared": lambda: any_likelihood.declared(any_likelihood.full),
    "factors": lambda: factor_kind_model(FactorKind()),
    "hierarchies": hierarchies.declared,
    "max margin": tiny_views,
}
