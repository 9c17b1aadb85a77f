"""What a pipeline file is made of: values with their lines, the shapes that they must have, and the secrets in them."""
