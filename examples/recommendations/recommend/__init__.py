"""An example for batchyard: an autoencoder that recommends items to users.

settings      the configuration, from environment variables
ratings       the set of ratings: made here, from a file or from S3
autoencoder   the network: predictions, gradients and Adam, on NumPy or CuPy arrays
ranks         the processes of `mpirun` and their sums
training      batches, divided among the ranks
recommending  predictions for all users, and how good they are
"""
