"""CustomResourceDefinitions: schemas, validation, CEL rules, serving."""
